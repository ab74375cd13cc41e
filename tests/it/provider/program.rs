use std::process::{Command, Output};

use super::mock::{Answer, Mock, says};

async fn program(mock: &Mock, args: &'static [&'static str]) -> Output {
    let url = mock.url();
    let run = move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.args(args).env("ANABRANCH_BASE_URL", url).env("OPENAI_API_KEY", "sk-very-secret");
        command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_answers_with_the_words_of_a_server_on_this_machine() {
    let mock = Mock::new(vec![Answer::sse(says("as the server said"))]).await;
    let ran = program(&mock, &["run", "--model", "openai:m", "--output", "text", "what?"]).await;
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(0), b"as the server said\n".as_slice()), "{ran:?}");
    let request = &mock.requests()[0];
    assert_eq!(request["model"], "m");
    assert!(request["tools"].as_array().is_some_and(|tools| tools.len() > 5), "{request}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_refuses_the_key_is_quoted_without_it() {
    let refused =
        Answer::with("401 Unauthorized", "", "{\"error\":{\"message\":\"no such key: sk-very-secret\"}}");
    let mock = Mock::new(vec![refused]).await;
    let ran = program(&mock, &["run", "--model", "openai:m", "--output", "jsonl", "what?"]).await;
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let said = String::from_utf8_lossy(&ran.stderr) + String::from_utf8_lossy(&ran.stdout);
    assert!(said.contains("no such key: [key]") && !said.contains("very-secret"), "{said}");
}
