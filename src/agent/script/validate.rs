//! Whether a script can be run at all, found out before anything runs.

use std::path::Path;

use serde_json::Value;

use crate::agent::sandbox::{GuestError, GuestLimits, Program, Surface, compile};
use crate::error::{Error, ErrorKind, Result};

/// Checks a script: it is not blank, it compiles, and it takes no name that is taken. Nothing of it is run.
///
/// # Errors
///
/// [`ErrorKind::Script`] with the line and what is wrong in it.
pub fn check_script(code: &str, path: &Path) -> Result<()> {
    let fail =
        |at: String, reason: String| Err(Error::new(ErrorKind::Script { path: path.to_owned(), at, reason }));
    if code.trim().is_empty() {
        let reason = "it is empty: write JavaScript, the body of an async function";
        return fail("line 1".to_owned(), reason.to_owned());
    }
    let surface = Surface::Script { inputs: Value::Null, max_agent_calls: 0, agent_tools: Vec::new() };
    let program =
        Program { code: code.to_owned(), tools: Vec::new(), surface, limits: GuestLimits::default() };
    compile(program).or_else(|GuestError { message, stack, .. }| {
        let at = stack.lines().next().and_then(|frame| frame.rsplit_once("action:")?.1.split(':').next());
        let at = at.map_or_else(|| "its top level".to_owned(), |line| format!("line {line}"));
        let excerpt = stack.split_once('\n').map(|(_, excerpt)| format!("\n{excerpt}")).unwrap_or_default();
        fail(at, format!("{message}{excerpt}"))
    })
}
