//! What a tool answers: one text for the model, with images beside it, and one for the person.

use serde_json::{Map, Value, json};

use crate::model::{Image, Images};

/// The answer of a tool call. An error is a value too: the model reads it and goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    /// What the model reads: a string, or any JSON value.
    pub for_model: Value,
    /// What the model sees beside it. Code that calls the tool gets the value alone, and the model that wrote it sees the images of all
    /// that it called. The log has no bytes of them, only what they are.
    pub images: Images,
    /// What a person sees instead, if that should differ: usually one line.
    pub for_person: Option<Box<str>>,
    /// Whether the call failed.
    pub is_error: bool,
    /// With one, the run of the call is done when the other calls of the turn are, and this is its result.
    pub finishes_with: Option<Box<Value>>,
    /// With one, the run of the call ends as failed (`aborted`), for this reason: something below it was aborted by a rule that nobody
    /// is to work around.
    pub aborts_with: Option<Box<String>>,
}

impl ToolReply {
    /// A successful answer.
    #[must_use]
    pub fn ok(for_model: impl Into<Value>) -> Self {
        Self {
            for_model: for_model.into(),
            images: Images::default(),
            for_person: None,
            is_error: false,
            finishes_with: None,
            aborts_with: None,
        }
    }

    /// A successful answer that ends the run with this result.
    #[must_use]
    pub fn finishing(result: Value) -> Self {
        Self { finishes_with: Some(Box::new(result)), ..Self::ok("done") }
    }

    /// A failure: `{"error": code, "message": message}`. The code is for machines, the message says what was wrong
    /// and how to do it right.
    #[must_use]
    pub fn error(code: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            for_person: Some(message.as_str().into()),
            for_model: json!({ "error": code, "message": message }),
            images: Images::default(),
            is_error: true,
            finishes_with: None,
            aborts_with: None,
        }
    }

    /// A failure that ends the run.
    #[must_use]
    pub fn aborting(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let text = format!("The run was aborted by a rule of its host. {reason}");
        Self { aborts_with: Some(Box::new(reason)), ..Self::error("aborted", text) }
    }

    /// Adds keys to an error's object (the codes that the originals send along, such as `query`).
    #[must_use]
    pub fn with(mut self, extras: Map<String, Value>) -> Self {
        if let Value::Object(object) = &mut self.for_model {
            object.extend(extras);
        }
        self
    }

    /// Adds an image that the model sees beside the text. More than [`Images::MAX`] are only counted.
    #[must_use]
    pub fn with_image(mut self, image: Image) -> Self {
        self.images.push(image);
        self
    }

    /// Sets the text for a person.
    #[must_use]
    pub fn shown_as(mut self, text: impl Into<String>) -> Self {
        self.for_person = Some(text.into().into_boxed_str());
        self
    }

    /// The text that goes into the model's conversation: strings as they are, other values as JSON.
    #[must_use]
    pub fn model_text(&self) -> String {
        match &self.for_model {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}
