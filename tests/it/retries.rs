//! `run_with_retry`, and hooks around an executor, by the acceptance criteria of the original with its defects mended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch::frame::compound::{Compound, CompoundError, CompoundResult, Stage};
use anabranch::frame::{Abort, Attempt, Parent, Retry, RetryError, StepFailure, run_with_retry};
use anabranch::message::ProcessingMessage;
use anabranch::testing::timeline;
use anabranch::tool::{After, Before, Hook, HookResult, HookedCall, Hooks, Redirect, ToolReply};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::compound::{model, writer};
use crate::kit::inside;

#[derive(Debug, thiserror::Error, PartialEq)]
#[error("broken {0}")]
struct Broken(u32);

type Heard = Arc<Mutex<Vec<String>>>;

/// A hook that notes what it hears, and decides by functions.
struct Says {
    heard: Heard,
    before: fn(&HookedCall) -> Before,
    after: fn(&HookedCall) -> After,
    error: fn(&HookedCall) -> After,
}

impl Says {
    fn new(heard: &Heard) -> Self {
        Self {
            heard: Arc::clone(heard),
            before: |_| Before::Continue,
            after: |_| After::Continue,
            error: |_| After::Continue,
        }
    }

    fn note(&self, text: String) {
        self.heard.lock().unwrap().push(text);
    }
}

impl Hook for Says {
    fn name(&self) -> &str {
        "says"
    }

    fn before<'a>(&'a self, call: &'a HookedCall) -> BoxFuture<'a, HookResult<Before>> {
        self.note(format!("before {} {}", call.tool, json!(*call.args)));
        Box::pin(std::future::ready(Ok((self.before)(call))))
    }

    fn after<'a>(
        &'a self,
        call: &'a HookedCall,
        reply: &'a ToolReply,
        took: Duration,
    ) -> BoxFuture<'a, HookResult<After>> {
        self.note(format!("after {} {} {}ms", call.tool, reply.model_text(), took.as_millis()));
        Box::pin(std::future::ready(Ok((self.after)(call))))
    }

    fn on_error<'a>(
        &'a self,
        call: &'a HookedCall,
        reply: &'a ToolReply,
    ) -> BoxFuture<'a, HookResult<After>> {
        self.note(format!("error {} {}", call.tool, reply.for_person.as_deref().unwrap_or_default()));
        Box::pin(std::future::ready(Ok((self.error)(call))))
    }
}

struct Tried {
    result: Result<String, RetryError>,
    notes: Vec<String>,
    log: Vec<ProcessingMessage>,
}

/// Tries an operation that fails so often, with arguments `{x: 1}` and the note `Do it.`.
async fn tries(retry: Retry, fails: u32) -> Tried {
    tries_with(retry, move |attempt, made| {
        if made <= fails { Err(Broken(made).into()) } else { Ok(format!("{} done", attempt.tool)) }
    })
    .await
}

async fn tries_with(
    retry: Retry,
    act: impl Fn(&Attempt, u32) -> Result<String, Box<dyn std::error::Error + Send + Sync>>
    + Send
    + Sync
    + 'static,
) -> Tried {
    let ((result, notes), log) = inside(|cx, emit| async move {
        let notes = Mutex::new(Vec::new());
        let args = Map::from_iter([("x".to_owned(), json!(1))]);
        let result = run_with_retry(&retry, &cx, &emit, "Do it.", args, |attempt: Attempt| {
            let made = {
                let mut notes = notes.lock().unwrap();
                notes.push(attempt.note.clone());
                notes.len() as u32
            };
            std::future::ready(act(&attempt, made))
        })
        .await;
        (result, notes.into_inner().unwrap())
    })
    .await;
    Tried { result, notes, log }
}

fn retry() -> Retry {
    Retry::new("deploy")
}

#[tokio::test(start_paused = true)]
async fn a15_a16_a_first_success_is_one_call_and_hooks_hear_of_it_exactly() {
    let heard = Heard::default();
    let tried = tries(retry().hooks(Hooks::new().with(Says::new(&heard))), 0).await;
    assert_eq!(tried.result.unwrap(), "deploy done");
    assert_eq!(tried.notes, ["Do it."]);
    assert_eq!(*heard.lock().unwrap(), [r#"before deploy {"x":1}"#, "after deploy deploy done 0ms"]);
}

#[tokio::test(start_paused = true)]
async fn a17_a21_a_second_attempt_has_the_failure_in_its_note_and_comes_later() {
    let tried = tries(retry().attempts(3).unwrap(), 2).await;
    assert_eq!(tried.result.unwrap(), "deploy done");
    assert_eq!(tried.notes[0], "Do it.");
    assert!(
        tried.notes[1].starts_with("Do it.\n\nPREVIOUS ATTEMPT FAILED: broken 1\n"),
        "{}",
        tried.notes[1]
    );
    // Of the original note, not of the second one.
    assert!(tried.notes[2].starts_with("Do it.\n\nPREVIOUS ATTEMPT FAILED: broken 2\n"));
    let log = timeline(&tried.log);
    let waits: Vec<u64> = log
        .lines()
        .filter_map(|line| line.strip_prefix("root retrying ")?.split(' ').nth(2)?.parse().ok())
        .collect();
    assert!((250..=500).contains(&waits[0]) && (500..=1000).contains(&waits[1]), "{log}");
    assert!(log.contains("root retrying 2 in ") && log.contains(" ms: broken 1"));
    let took =
        tried.log.last().unwrap().nesting().unwrap().time.millis_since(tried.log[0].nesting().unwrap().time);
    assert_eq!(took, waits[0] + waits[1]);
}

#[tokio::test(start_paused = true)]
async fn a18_a22_after_the_last_attempt_there_is_a_typed_error() {
    let heard = Heard::default();
    let tried = tries(retry().attempts(3).unwrap().hooks(Hooks::new().with(Says::new(&heard))), 9).await;
    let error = tried.result.unwrap_err();
    assert_eq!((error.attempts, error.last_as::<Broken>()), (3, Some(&Broken(3))));
    assert_eq!(error.to_string(), "deploy failed after 3 attempts: broken 3");
    // A failure is heard of as one, and once.
    assert_eq!(*heard.lock().unwrap(), [r#"before deploy {"x":1}"#, "error deploy broken 3."]);
}

#[tokio::test(start_paused = true)]
async fn a19_what_is_not_to_be_repeated_is_not() {
    let tried = tries(retry().attempts(5).unwrap().retrying_if(|_| false), 9).await;
    assert_eq!((tried.notes.len(), tried.result.unwrap_err().attempts), (1, 1));
    // In the original an abort from inside was tried again, and no attempts at all were said to be one.
    let tried = tries_with(retry().attempts(5).unwrap(), |_, _| Err(Abort::new("never").into())).await;
    let error = tried.result.unwrap_err();
    assert!(matches!(&error.last, StepFailure::Aborted(reason) if reason == "never"));
    assert_eq!(error.attempts, 1);
    assert!(Retry::new("deploy").attempts(0).unwrap_err().to_string().contains("attempts is 0"));
    let tried =
        tries_with(retry(), |_, made| if made == 1 { panic!("boom") } else { Ok("mended".into()) }).await;
    assert_eq!(tried.result.unwrap(), "mended");
    assert!(tried.notes[1].contains("it panicked: boom"));
}

#[tokio::test(start_paused = true)]
async fn a20_the_enrichment_is_the_author_s() {
    let tried = tries(retry().enriching(|note, error| format!("{note} Not like this: {error}.")), 1).await;
    assert_eq!(tried.notes[1], "Do it. Not like this: broken 1.");
    let tried = tries(retry().enriching(|_, _| panic!("no words")), 1).await;
    let error = tried.result.unwrap_err();
    assert_eq!(error.to_string(), "deploy failed after 1 attempt: it panicked: no words");
}

#[tokio::test(start_paused = true)]
async fn a23_a24_a25_hooks_skip_redirect_and_abort() {
    let heard = Heard::default();
    let with = |before: fn(&HookedCall) -> Before| {
        retry().hooks(Hooks::new().with(Says { before, ..Says::new(&heard) }))
    };
    let tried = tries(with(|_| Before::Skip { reason: "holiday".into(), stub: json!("as if") }), 0).await;
    assert_eq!((tried.result.unwrap().as_str(), tried.notes.len()), ("as if", 0));
    assert_eq!(heard.lock().unwrap().last().unwrap(), "after deploy as if 0ms");
    let tried = tries(with(|_| Before::Skip { reason: "holiday".into(), stub: json!(7) }), 0).await;
    assert!(tried.result.unwrap_err().to_string().contains("the stub of says is no result of deploy"));
    // In the original only the note of a redirect counted.
    let to_dry_run = |_: &HookedCall| {
        let args = Map::from_iter([("note".to_owned(), json!("Try it."))]);
        Before::Redirect(Redirect::tool("dry_run").with_args(args).because("Sunday"))
    };
    let tried = tries(with(to_dry_run), 1).await;
    assert_eq!(tried.result.unwrap(), "dry_run done");
    assert!(
        tried.notes[0] == "Try it." && tried.notes[1].starts_with("Try it.\n\nPREVIOUS"),
        "{:?}",
        tried.notes
    );
    assert!(timeline(&tried.log).contains("says redirected to dry_run"));
    let tried = tries(with(|_| Before::Abort { reason: "never".into() }), 0).await;
    let error = tried.result.unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.attempts),
        ("deploy failed after 0 attempts: aborted: says: never", 0)
    );
}

type Acted = (Result<CompoundResult<String>, CompoundError>, Vec<String>, Vec<String>, String);

/// A compound without refinements, whose executor fails so often, with these hooks around it.
async fn acts(fails: u32, says: impl FnOnce(Says) -> Says) -> Acted {
    let (heard, model) = (Heard::default(), model(&["one"]));
    let hooks = Hooks::new().with(says(Says::new(&heard)));
    let made = Arc::new(Mutex::new(0));
    let compound = Compound::<Vec<String>, String>::builder()
        .agent(writer(&model))
        .executor(move |action| {
            let mut made = made.lock().unwrap();
            *made += 1;
            let done = if *made <= fails {
                Err(Broken(*made))
            } else {
                Ok(format!("did {}", action.output.as_str().unwrap()))
            };
            std::future::ready(done)
        })
        .other_executor(
            "dry_run",
            |action| async move { Ok::<_, Broken>(format!("tried {}", action.output)) },
        )
        .state_updater(|done: &String, state: &mut Vec<String>| state.push(done.clone()))
        .hooks(hooks)
        .build()
        .unwrap();
    let ((result, state), log) = inside(|cx, _| async move {
        let mut state = Vec::new();
        let result = compound.run(&Parent::of(&cx), &mut state, "Write.").await;
        (result, state)
    })
    .await;
    let heard = heard.lock().unwrap().clone();
    (result, state, heard, timeline(&log))
}

#[tokio::test(start_paused = true)]
async fn a26_a29_a31_hooks_stand_around_the_executor() {
    let (result, state, heard, _) = acts(0, |says| says).await;
    let result = result.unwrap();
    assert_eq!(
        (result.output, result.result, state),
        (json!("one"), "did one".to_owned(), vec!["did one".to_owned()])
    );
    assert_eq!(
        heard,
        [r#"before writer {"agent_output":"one","prompt":"Write."}"#, "after writer did one 0ms"]
    );
}

#[tokio::test(start_paused = true)]
async fn a30_a33_a34_an_executor_that_fails_is_tried_once_more_if_a_hook_redirects() {
    let (result, state, heard, _) = acts(1, |says| says).await;
    let error = result.unwrap_err();
    assert_eq!(
        (error.stage, error.to_string().as_str()),
        (Stage::Executor, "writer: the executor of pass 1 failed: broken 1")
    );
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.downcast_ref(), Some(&Broken(1)));
    assert_eq!((heard.len(), heard[1].as_str(), state.len()), (2, "error writer broken 1.", 0));

    let again = |call: &HookedCall| After::Redirect(Redirect::args(Map::clone(&call.args)));
    let (result, _, heard, _) = acts(1, move |says| Says { error: again, ..says }).await;
    assert_eq!(
        (result.unwrap().result.as_str(), heard.last().unwrap().as_str()),
        ("did one", "after writer did one 0ms")
    );
    let (result, _, _, log) = acts(9, move |says| Says { error: again, ..says }).await;
    assert!(result.unwrap_err().to_string().ends_with("broken 2"), "once");
    assert!(log.contains("its redirect has no effect"), "{log}");
}

/// In the original a redirect changed what hooks saw, and not what was executed.
#[tokio::test(start_paused = true)]
async fn a36_a37_a38_skip_redirect_and_abort_change_what_is_executed() {
    let skip = |_: &HookedCall| Before::Skip { reason: "holiday".into(), stub: json!("as if") };
    let (result, state, heard, _) = acts(9, |says| Says { before: skip, ..says }).await;
    assert_eq!((result.unwrap().result, state), ("as if".to_owned(), vec!["as if".to_owned()]));
    assert_eq!(heard[1], "after writer as if 0ms");

    let other_output = |_: &HookedCall| {
        let args = [("agent_output".to_owned(), json!("two")), ("by".to_owned(), Value::from("hook"))];
        Before::Redirect(Redirect::args(Map::from_iter(args)))
    };
    let sees_them = |call: &HookedCall| match call.args.get("by") {
        Some(_) => After::Continue,
        None => After::Abort { reason: "the arguments of the redirect are gone".into() },
    };
    let (result, ..) = acts(0, |says| Says { before: other_output, after: sees_them, ..says }).await;
    assert_eq!(result.unwrap().result, "did two");
    let dry_run = |_: &HookedCall| Before::Redirect(Redirect::tool("dry_run"));
    let (result, _, heard, _) = acts(0, |says| Says { before: dry_run, ..says }).await;
    assert_eq!(
        (result.unwrap().result.as_str(), heard[1].as_str()),
        ("tried \"one\"", "after dry_run tried \"one\" 0ms")
    );
    let nowhere = |_: &HookedCall| Before::Redirect(Redirect::tool("nowhere"));
    let (result, ..) = acts(0, |says| Says { before: nowhere, ..says }).await;
    let text = result.unwrap_err().to_string();
    assert!(text.ends_with("a hook redirected to nowhere; the executors are: writer, dry_run"), "{text}");

    let abort = |_: &HookedCall| Before::Abort { reason: "never".into() };
    let (result, state, _, log) = acts(0, |says| Says { before: abort, ..says }).await;
    assert!(matches!(result.unwrap_err().failure, StepFailure::Aborted(reason) if reason == "says: never"));
    assert!(state.is_empty() && log.contains("root/Write. failed (refused)"), "{log}");
}
