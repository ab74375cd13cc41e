//! Tags: a part of an envelope, for producers that pass on what another host will stamp.

use crate::id::ToolCallId;

/// What a message may know of its place before it is stamped.
///
/// Absent and null differ: `parent_tool_call_id: None` says nothing of it, `Some(None)` says that no call spawned the
/// run. Tagging sets what is not set yet: a tag that is already there is from nearer to the source, and stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tag {
    /// The call that spawned the run.
    pub parent_tool_call_id: Option<Option<ToolCallId>>,
    /// The depth of the run.
    pub depth: Option<u32>,
}

impl Tag {
    /// True if it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parent_tool_call_id.is_none() && self.depth.is_none()
    }

    /// This tag; where it says nothing, what `outer` says.
    #[must_use]
    pub fn completed_by(&self, outer: &Self) -> Self {
        Self {
            parent_tool_call_id: self
                .parent_tool_call_id
                .clone()
                .or_else(|| outer.parent_tool_call_id.clone()),
            depth: self.depth.or(outer.depth),
        }
    }
}
