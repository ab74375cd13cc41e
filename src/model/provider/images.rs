//! Images as providers take them: in a message of the user behind the results, since most take none in a result.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::model::{ChatMessage, Image};

/// The conversation, the results of one turn together.
pub(super) fn by_turn(conversation: &[ChatMessage]) -> impl Iterator<Item = &[ChatMessage]> {
    let is_result = |message: &ChatMessage| matches!(message, ChatMessage::ToolResult { .. });
    conversation.chunk_by(move |one, next| is_result(one) && is_result(next))
}

/// A part of a message that is more than a text.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    Text(String),
    Image(&'a Image),
}

/// What is seen beside the results of a turn, each after a line that says whose it is; nothing if there are no images.
pub(super) fn beside(results: &[ChatMessage]) -> Vec<Part<'_>> {
    results.iter().flat_map(beside_one).collect()
}

fn beside_one(result: &ChatMessage) -> Vec<Part<'_>> {
    let ChatMessage::ToolResult { id, name, images, .. } = result else { return Vec::new() };
    let line = match (images.shown().len(), images.left_out()) {
        (0, 0) => return Vec::new(),
        (_, 0) => format!("Images of the result of {name} (call {id}):"),
        (0, left_out) => {
            format!("{left_out} images of the result of {name} (call {id}) are not shown any more.")
        }
        (_, left_out) => {
            format!("Images of the result of {name} (call {id}); {left_out} more are not shown:")
        }
    };
    std::iter::once(Part::Text(line)).chain(images.shown().iter().map(Part::Image)).collect()
}

/// The bytes of an image as text.
pub(super) fn base64(image: &Image) -> String {
    STANDARD.encode(image.bytes())
}
