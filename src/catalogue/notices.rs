//! What is wrong with definitions, told in the log: each thing once in a tree.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::directories::Listing;
use crate::message::{ErrorNotice, Extra, MessageBody, Severity};
use crate::tool::Caller;

/// So many things are told in one tree: whoever mends a hundred files looks at `anabranch agents`.
const MAX_TOLD: usize = 100;

/// What a tree has been told. Taken alone, for one look.
#[derive(Debug, Default)]
struct Told(Mutex<HashSet<String>>);

impl Told {
    fn is_new(&self, text: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < MAX_TOLD && told.insert(text.to_owned())
    }
}

/// Tells what of a listing is wrong, in the log of the run that looked.
pub(super) async fn tell_listing(listing: &Listing, caller: &Caller) {
    for error in &listing.errors {
        let message = error.to_string();
        if is_new(&message, caller) {
            let severity = Some(Severity::Warning.as_str().to_owned());
            caller.emitter().send(ErrorNotice { message, severity, extra: Extra::default() }).await;
        }
    }
    for warning in &listing.warnings {
        tell(warning.to_string(), caller).await;
    }
}

/// Tells one thing that a person should know.
pub(super) async fn tell(text: String, caller: &Caller) {
    if is_new(&text, caller) {
        caller.emitter().send(MessageBody::log("agents", Severity::Warning, text)).await;
    }
}

fn is_new(text: &str, caller: &Caller) -> bool {
    caller.run().root().extension::<Told>().is_new(text)
}
