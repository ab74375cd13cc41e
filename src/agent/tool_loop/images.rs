//! How much of the images of a conversation is sent again with each turn.

use crate::model::ChatMessage;

/// So many images stand in a conversation at once: with more, providers take only small ones.
/// <https://docs.anthropic.com/en/docs/build-with-claude/vision>
const MAX_IMAGES: usize = 20;

/// So many bytes of them: as base64 it is 16 MiB, which leaves room for the text where a request may have 20 MB.
/// <https://ai.google.dev/gemini-api/docs/image-understanding>
const MAX_BYTES: usize = 12 << 20;

/// Takes the oldest images out of a conversation that has too many: down to half of what it may have, since providers remember a
/// conversation only up to the first change.
pub(super) fn shed(history: &mut [ChatMessage]) {
    let images = history.iter().filter_map(|message| match message {
        ChatMessage::ToolResult { images, .. } => Some(images.shown()),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    });
    let sizes: Vec<usize> = images.flatten().map(|image| image.bytes().len()).collect();
    if sizes.len() <= MAX_IMAGES && sizes.iter().sum::<usize>() <= MAX_BYTES {
        return;
    }
    let (mut count, mut bytes, mut is_full) = (MAX_IMAGES / 2, MAX_BYTES / 2, false);
    for message in history.iter_mut().rev() {
        let ChatMessage::ToolResult { images, .. } = message else { continue };
        images.keep_latest(|image| {
            // With the first that has no room all older ones go: what is kept has no gap.
            is_full |= count == 0 || image.bytes().len() > bytes;
            if !is_full {
                count -= 1;
                bytes -= image.bytes().len();
            }
            !is_full
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Image, Images};

    fn result(images: impl IntoIterator<Item = usize>) -> ChatMessage {
        let image = |bytes| {
            let mut gif = b"GIF89a".to_vec();
            gif.resize(bytes, 0);
            Image::new(gif).unwrap()
        };
        let images: Images = images.into_iter().map(image).collect();
        let (id, name) = (crate::id::ToolCallId::new("c"), "shot".into());
        ChatMessage::ToolResult { id, name, content: String::new(), images, is_error: false }
    }

    fn kept(history: &[ChatMessage]) -> Vec<(usize, u32)> {
        let images = |message: &ChatMessage| match message {
            ChatMessage::ToolResult { images, .. } => Some((images.shown().len(), images.left_out())),
            _ => None,
        };
        history.iter().filter_map(images).collect()
    }

    #[test]
    fn the_latest_images_stay() {
        let user = ChatMessage::User { text: "look".to_owned() };
        let mut history = vec![user.clone(), result([10; 8]), result([10; 8]), user, result([10; 4])];
        shed(&mut history);
        assert_eq!(kept(&history), [(8, 0), (8, 0), (4, 0)]);
        history.push(result([10; 3]));
        shed(&mut history);
        assert_eq!(kept(&history), [(0, 8), (3, 5), (4, 0), (3, 0)]);
        shed(&mut history);
        assert_eq!(kept(&history), [(0, 8), (3, 5), (4, 0), (3, 0)]);
    }

    #[test]
    fn large_ones_count_by_their_bytes() {
        const MIB: usize = 1 << 20;
        let mut history = vec![result([3 * MIB, 3 * MIB]), result([3 * MIB, 3 * MIB])];
        shed(&mut history);
        assert_eq!(kept(&history), [(2, 0), (2, 0)]);
        history.push(result([10]));
        shed(&mut history);
        // The one before would have no room, so none before it is kept either.
        assert_eq!(kept(&history), [(0, 2), (1, 1), (1, 0)]);
    }
}
