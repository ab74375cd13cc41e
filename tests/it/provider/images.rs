use anabranch::model::{ChatMessage, ToolRequest};
use serde_json::{Value, json};

use super::mock::{Answer, Mock, ask, call, event, request, run, says};
use crate::images::{camera, gif};

/// Two calls with images and one without, then what the person says.
fn conversation() -> Vec<ChatMessage> {
    let call = |id: &str| ToolRequest { id: id.into(), name: "shoot".into(), arguments: json!({}) };
    let result = |id: &str, images: &[u8]| ChatMessage::ToolResult {
        id: id.into(),
        name: "shoot".into(),
        content: format!("text of {id}"),
        images: images.iter().map(|number| gif(*number)).collect(),
        is_error: false,
    };
    vec![
        ChatMessage::User { text: "look".to_owned() },
        ChatMessage::Assistant { text: String::new(), tool_calls: vec![call("a"), call("b"), call("c")] },
        result("a", &[0, 1]),
        result("b", &[]),
        result("c", &[2; 10]),
        ChatMessage::User { text: "go on".to_owned() },
    ]
}

/// The bytes of the image as base64.
fn base64(number: u8) -> String {
    format!("R0lGODlh{}", ["AA==", "AQ==", "Ag=="][usize::from(number)])
}

/// What this provider is asked.
async fn asked(name: &str) -> Value {
    let mock = Mock::new(vec![Answer::with("400 Bad Request", "", "no")]).await;
    ask(&mock.builder(name).api_key("sk-1").build().unwrap(), request(conversation())).await;
    mock.requests().remove(0)
}

const LINES: [&str; 2] = [
    "Images of the result of shoot (call a):",
    "Images of the result of shoot (call c); 2 more are not shown:",
];

fn url(number: u8) -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:image/gif;base64,{}", base64(number))}})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[tokio::test]
async fn chat_completions_show_them_in_one_message_behind_all_results_of_the_turn() {
    let mut parts = vec![text(LINES[0]), url(0), url(1), text(LINES[1])];
    parts.extend(vec![url(2); 8]);
    assert_eq!(
        asked("openai:m").await["messages"].as_array().unwrap()[2..],
        [
            json!({"role": "tool", "tool_call_id": "a", "content": "text of a"}),
            json!({"role": "tool", "tool_call_id": "b", "content": "text of b"}),
            json!({"role": "tool", "tool_call_id": "c", "content": "text of c"}),
            json!({"role": "user", "content": parts}),
            json!({"role": "user", "content": "go on"}),
        ]
    );
}

/// It takes no message of the user behind results, and images in them.
#[tokio::test]
async fn mistral_shows_them_in_the_results() {
    let messages = asked("mistral:m").await["messages"].clone();
    assert_eq!(messages[2]["content"], json!([text("text of a"), text(LINES[0]), url(0), url(1)]));
    assert_eq!(messages[3]["content"], "text of b");
    assert_eq!((&messages[4]["role"], &messages[5]["content"]), (&json!("tool"), &json!("go on")));
}

#[tokio::test]
async fn every_other_protocol_shows_them_in_its_own_way() {
    let source = json!({"type": "base64", "media_type": "image/gif", "data": base64(0)});
    let anthropic = asked("anthropic:m").await["messages"].clone();
    assert_eq!(anthropic[3]["content"][1], json!({"type": "image", "source": source}));
    let roles: Vec<&Value> = anthropic.as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "user", "user"]);
    for (name, part) in [
        ("gemini:m", json!({"inline_data": {"mime_type": "image/gif", "data": base64(0)}})),
        (
            "openai_resp:m",
            json!({"type": "input_image", "detail": "auto", "image_url": format!("data:image/gif;base64,{}", base64(0))}),
        ),
    ] {
        let asked = asked(name).await;
        assert!(asked.to_string().contains(&part.to_string()), "{name}: {asked}");
    }
    let others = ["gemini_ix:m", "ollama:m", "vertex:gemini-m", "vertex:claude-m", "bedrock_api:a.m-v1:0"];
    for name in others {
        let asked = asked(name).await.to_string();
        assert!(asked.contains(&base64(0)) && asked.contains(&base64(2)), "{name}: {asked}");
        assert!(asked.contains(LINES[0]) && asked.contains(LINES[1]), "{name}: {asked}");
    }
}

#[tokio::test]
async fn a_run_sends_the_images_of_its_tools_and_a_model_that_takes_none_says_so() {
    let refusal = json!({"error": {"message": "this model does not support image input"}}).to_string();
    let shot =
        call(0, "c1", "shoot", json!("{\"first\":0,\"count\":1}")) + &event(json!({}), Some("tool_calls"));
    let mock = Mock::new(vec![Answer::sse(shot.clone()), Answer::sse(says("a gif"))]).await;
    let ran = run(mock.model("openai:m"), camera()).await;
    assert_eq!(ran.outcome.result(), Some(&json!("a gif")));
    assert_eq!(
        mock.requests()[1]["messages"][3]["content"],
        json!([text("Images of the result of shoot (call c1):"), url(0)])
    );
    let mock = Mock::new(vec![Answer::sse(shot), Answer::with("400 Bad Request", "", refusal)]).await;
    let ran = run(mock.model("openai:m"), camera()).await;
    let advice = "does not support image input (the model takes no images: choose another one, or tools that return none)";
    assert!(format!("{:?}", ran.outcome).contains(advice), "{:?}", ran.outcome);
}
