//! stand-in until merge
use super::chat::*;
#[derive(Debug)]
pub struct OfflineModel;
impl OfflineModel {
    pub fn new() -> Self {
        Self
    }
}
impl ChatModel for OfflineModel {
    fn name(&self) -> &str {
        "offline"
    }
    fn chat(&self, _: ChatRequest) -> ChatStream {
        Box::pin(futures::stream::iter([
            Ok(ChatEvent::Text("hi".into())),
            Ok(ChatEvent::End { stop_reason: crate::outcome::StopReason::EndTurn, usage: None }),
        ]))
    }
}
