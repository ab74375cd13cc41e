//! Images that tools return: what a model sees of them, and what the log says.

use anabranch::message::MessageBody;
use anabranch::model::{ChatMessage, Image, Images};
use anabranch::tool::{ToolReply, Toolset, tool_fn};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::stage::{Played, Stage, calls};

#[derive(Deserialize, JsonSchema)]
struct Shoot {
    first: u8,
    count: u8,
}

pub fn gif(number: u8) -> Image {
    Image::new([&b"GIF89a"[..], &[number]].concat()).unwrap()
}

/// A tool that returns so many images, whose bytes end with numbers in a row.
pub fn camera() -> Toolset {
    let shoot = tool_fn("shoot", "Takes pictures.", |Shoot { first, count }, _| async move {
        let images = first..first + count;
        images.fold(ToolReply::ok(json!({ "taken": count })), |reply, number| reply.with_image(gif(number)))
    });
    Toolset::new().with(shoot).unwrap()
}

/// Text, images and what is missing of them, of each result that the root's model read last.
fn seen(played: &Played) -> Vec<(Value, Images)> {
    let requests = played.model.requests();
    let results = requests.last().unwrap().messages.iter().filter_map(|message| match message {
        ChatMessage::ToolResult { content, images, .. } => {
            Some((serde_json::from_str(content).unwrap(), images.clone()))
        }
        _ => None,
    });
    results.collect()
}

/// What the log says of images, of each result.
fn logged(played: &Played) -> Vec<[Option<Value>; 2]> {
    let results = played.log.iter().filter_map(|message| match message.body() {
        MessageBody::ToolResultUpdate(result) => {
            let said = |key| result.extra.get(key).map(|text| serde_json::from_str(text).unwrap());
            Some([said("images"), said("images_left_out")])
        }
        _ => None,
    });
    results.collect()
}

fn one_gif() -> Value {
    json!({ "media_type": "image/gif", "bytes": 7 })
}

#[tokio::test]
async fn a_model_sees_the_images_of_a_result_beside_its_text_and_the_log_says_what_they_are() {
    let turns = [
        calls("shoot", json!({ "first": 0, "count": 1 })),
        calls("shoot", json!({ "first": 1, "count": 10 })),
    ];
    let turns: Vec<Value> = turns.into_iter().chain([json!({ "text": "done" })]).collect();
    let played = Stage::new(json!([{ "turns": turns }])).tools(camera()).play().await;
    assert_eq!(
        seen(&played),
        [
            (json!({ "taken": 1 }), [gif(0)].into_iter().collect()),
            (json!({ "taken": 10 }), (1..=10).map(gif).collect()),
        ]
    );
    assert_eq!(seen(&played)[1].1.left_out(), 2);
    assert_eq!(
        logged(&played),
        [[Some(json!([one_gif()])), None], [Some(json!(vec![one_gif(); 8])), Some(json!(2))]]
    );
    // No bytes of them are in the log.
    assert!(!played.log.iter().any(|message| message.to_json().contains("GIF")));
}

#[tokio::test]
async fn a_conversation_keeps_the_latest_images() {
    let turn = |first: usize| calls("shoot", json!({ "first": first, "count": 5 }));
    let turns: Vec<Value> =
        (0..5).map(|turn| 5 * turn).map(turn).chain([json!({ "text": "done" })]).collect();
    let played = Stage::new(json!([{ "turns": turns }])).tools(camera()).play().await;
    let shown: Vec<(usize, u32)> =
        seen(&played).iter().map(|(_, images)| (images.shown().len(), images.left_out())).collect();
    assert_eq!(shown, [(0, 5), (0, 5), (0, 5), (5, 0), (5, 0)]);
}

#[cfg(feature = "codeact")]
mod code {
    use anabranch::agent::codeact::CodeAct;

    use super::*;

    async fn play(code: &str) -> Played {
        let turns = json!([{ "code": code }, { "text": "done" }]);
        let stage = Stage::new(json!([{ "turns": turns }])).produced_by(CodeAct::default());
        stage.tools(camera()).play().await
    }

    #[tokio::test]
    async fn code_reads_the_value_and_the_model_that_wrote_it_sees_the_images() {
        let played = play(
            "return [await tools.shoot({ first: 0, count: 1 }), await tools.shoot({ first: 1, count: 1 })]",
        )
        .await;
        let (observation, images) = seen(&played).remove(0);
        assert_eq!(observation["result"], json!([{ "taken": 1 }, { "taken": 1 }]));
        assert_eq!(observation.get("imagesDropped"), None);
        assert_eq!(images, (0..2).map(gif).collect());
        let one = [Some(json!([one_gif()])), None];
        assert_eq!(logged(&played), [one.clone(), one, [Some(json!([one_gif(), one_gif()])), None]]);
    }

    #[tokio::test]
    async fn images_above_the_cap_of_an_action_are_counted_and_dropped() {
        let played = play(
            "await tools.shoot({ first: 0, count: 5 }); await tools.shoot({ first: 5, count: 10 }); throw new Error('no')",
        )
        .await;
        let (observation, images) = seen(&played).remove(0);
        let keys: Vec<&String> = observation.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["ok", "error", "stack", "imagesDropped", "toolCalls"]);
        assert_eq!((&observation["imagesDropped"], images), (&json!(7), (0..8).map(gif).collect()));
    }
}
