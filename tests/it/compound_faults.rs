//! Compounds of which a part fails, panics, aborts, or that are cancelled: result and state agree whatever happens.

use std::sync::{Arc, Mutex};

use anabranch::frame::compound::{Compound, Evaluation, ExitReason, Stage};
use anabranch::frame::{Abort, Parent, StepFailure};
use anabranch::message::{MessageBody, ProcessingMessage};
use anabranch::outcome::{CancelledBy, SubAgentOutcome};
use anabranch::testing::{TestRoot, timeline};
use anabranch::{RunSpec, SubAgentStream};
use proptest::prelude::*;
use serde_json::json;

use crate::compound::{State, model, publish, run, until};
use crate::kit::inside;
use crate::stage::Recorder;

/// A compound of which one part goes wrong in one pass.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    Executor,
    Updater,
    Evaluator,
    Builder,
}

fn broken(model: &Arc<Recorder>, part: Part, in_pass: u32, panics: bool) -> Compound<State, String> {
    let fail = move |own: Part, pass: u32| -> Result<(), String> {
        match (own == part && pass == in_pass, panics) {
            (false, _) => Ok(()),
            (true, true) => panic!("{own:?} broke"),
            (true, false) => Err(format!("{own:?} broke")),
        }
    };
    let pass_of = |text: &str| if text.ends_with("one") { 1 } else { 2 };
    until(model, "never", 2)
        .executor(move |action| async move {
            fail(Part::Executor, action.pass)?;
            Ok::<_, String>(publish(action).await.unwrap())
        })
        .state_updater(move |text: &String, state: &mut State| {
            state.push(format!("half of {text}"));
            fail(Part::Updater, pass_of(text))?;
            state.pop();
            state.push(text.clone());
            Ok::<_, String>(())
        })
        .evaluator(move |text: &String| {
            fail(Part::Evaluator, pass_of(text)).map(|()| Evaluation::failed("more"))
        })
        .build_refinement_prompt(move |refinement| {
            let pass = refinement.history.len() as u32;
            fail(Part::Builder, pass).map(|()| "Again.".to_owned())
        })
        .build()
        .unwrap()
}

/// In the original some of these took the caller along, some were swallowed, and a half-applied update stayed.
#[tokio::test(start_paused = true)]
async fn in_a_refinement_every_failing_part_keeps_what_there_was_and_state_and_result_agree() {
    for panics in [false, true] {
        for (part, stage) in [
            (Part::Executor, Stage::Executor),
            (Part::Updater, Stage::StateUpdater),
            (Part::Evaluator, Stage::Evaluator),
            (Part::Builder, Stage::PromptBuilder),
        ] {
            let model = model(&["one", "two", "three"]);
            let ((result, state), log) = run(broken(&model, part, 2, panics), "Write.").await;
            let result = result.unwrap();
            // The prompt of the third pass is built when the second one is whole.
            let whole = if part == Part::Builder { 2 } else { 1 };
            let expected = [String::from("published one"), String::from("published two")];
            assert_eq!(result.exit_reason, ExitReason::RefinementFailedKeepOriginal, "{part:?}");
            assert_eq!(
                (result.pass, result.iterations, result.refined),
                (whole, whole, whole == 2),
                "{part:?}"
            );
            assert_eq!(result.result, expected[whole as usize - 1]);
            assert_eq!(state[1..], expected[..whole as usize], "{part:?}");
            let error = result.error.unwrap();
            assert_eq!((error.stage, error.pass), (stage, 2));
            let text = if panics { "it panicked: " } else { "" };
            assert!(error.to_string().ends_with(&format!("failed: {text}{part:?} broke")), "{error}");
            assert!(!timeline(&log).contains("failed (panic)"), "a typed failure, not the run's crash");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_pass_that_fails_is_an_error_and_leaves_the_state() {
    for panics in [false, true] {
        for (part, stage) in [(Part::Executor, Stage::Executor), (Part::Updater, Stage::StateUpdater)] {
            let model = model(&["one"]);
            let ((result, state), _) = run(broken(&model, part, 1, panics), "Write.").await;
            let error = result.unwrap_err();
            assert_eq!((error.stage, error.pass, error.history.len()), (stage, 1, 1));
            assert_eq!(matches!(error.failure, StepFailure::Panicked(_)), panics);
            assert_eq!(state, ["before"]);
        }
        // What was done has happened, whatever is thought of it.
        let model = model(&["one"]);
        let ((result, state), _) = run(broken(&model, Part::Evaluator, 1, panics), "Write.").await;
        let result = result.unwrap();
        assert_eq!(
            (result.result.as_str(), result.exit_reason),
            ("published one", ExitReason::RefinementFailedKeepOriginal)
        );
        assert_eq!(result.error.unwrap().stage, Stage::Evaluator);
        assert_eq!(state, ["before", "published one"]);
    }
    let nan = model(&["one"]);
    let compound =
        until(&nan, "x", 1).evaluator(|_| Evaluation::failed("more").scored(f64::NAN)).build().unwrap();
    let ((result, _), _) = run(compound, "Write.").await;
    assert!(result.unwrap().error.unwrap().to_string().contains("its score is NaN"));
}

/// In the original a security stop in a refinement became "kept the original".
#[tokio::test(start_paused = true)]
async fn an_abort_in_a_refinement_ends_everything() {
    let model = model(&["one", "two"]);
    let compound = until(&model, "never", 2)
        .executor(|action| async move {
            if action.pass == 2 {
                Err::<String, _>(Abort::new("not on a Sunday"))
            } else {
                Ok("published one".to_owned())
            }
        })
        .build()
        .unwrap();
    let ((result, state), log) = run(compound, "Write.").await;
    let error = result.unwrap_err();
    assert!(matches!(&error.failure, StepFailure::Aborted(reason) if reason == "not on a Sunday"), "{error}");
    assert_eq!((error.pass, error.history.len()), (2, 2));
    assert_eq!(state, ["before", "published one"]);
    assert!(timeline(&log).contains(
        "root/Write. failed (refused): writer: the executor of pass 2 failed: aborted: not on a Sunday"
    ));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_in_a_refinement_is_a_cancel_and_the_state_has_what_was_completed() {
    let agents = json!([
        { "when": { "title": "pass 1" }, "turns": [{ "text": "one" }] },
        { "turns": [{ "text": "two", "hang": true }] },
    ]);
    let model = Recorder::new(&agents);
    let compound = until(&model, "never", 2).build().unwrap();
    let test = TestRoot::new();
    let slot = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&slot);
    let run = test.root().run(RunSpec::new("host", "work"), |cx| {
        SubAgentStream::generate(|_| async move {
            /// Keeps the state however the run ends.
            struct Keeps(State, Arc<Mutex<State>>);
            impl Drop for Keeps {
                fn drop(&mut self) {
                    self.1.lock().unwrap().clone_from(&self.0);
                }
            }
            let mut state = Keeps(vec!["before".to_owned()], kept);
            let _ = compound.run(&Parent::of(&cx), &mut state.0, "Write.").await;
            SubAgentOutcome::completed("not reached")
        })
    });
    let mut events = test.root().subscribe(anabranch::bus::From::Start);
    let watcher = async {
        while let Some(delivery) = futures::StreamExt::next(&mut events).await {
            if matches!(delivery.message().map(ProcessingMessage::body), Some(MessageBody::Chunk(chunk)) if &*chunk.content == "two")
            {
                drop(test.root().cancel_all(CancelledBy::User));
            }
        }
    };
    let (outcome, ()) = tokio::join!(run.settle(), watcher);
    assert_eq!(outcome, SubAgentOutcome::cancelled(CancelledBy::User));
    let log = timeline(&test.finish());
    assert!(log.contains("root/Write. cancelled by parent"), "{log}");
    assert_eq!(*slot.lock().unwrap(), ["before", "published one"]);
}

/// Somebody ends one pass: that is a cancel too, and not a failure that is worked around.
#[tokio::test(start_paused = true)]
async fn a_cancel_of_one_pass_ends_the_compound() {
    let agents = json!([
        { "when": { "title": "pass 1" }, "turns": [{ "text": "one" }] },
        { "turns": [{ "text": "two", "hang": true }] },
    ]);
    let compound = until(&Recorder::new(&agents), "never", 2).build().unwrap();
    let ((error, state), log) = inside(|cx, _| async move {
        let mut state = Vec::new();
        let root = cx.root().clone();
        let mut events = root.subscribe(anabranch::bus::From::Start);
        let cancels = async {
            while let Some(delivery) = futures::StreamExt::next(&mut events).await {
                let Some(message) = delivery.message() else { continue };
                if matches!(message.body(), MessageBody::Chunk(chunk) if &*chunk.content == "two") {
                    let run = message.nesting().unwrap().origin.run_id.clone();
                    root.cancel(&run, CancelledBy::User).unwrap().await;
                    break;
                }
            }
        };
        let parent = Parent::of(&cx);
        let (result, ()) = tokio::join!(compound.run(&parent, &mut state, "Write."), cancels);
        (result.unwrap_err(), state)
    })
    .await;
    assert!(matches!(error.failure, StepFailure::Cancelled(CancelledBy::User)), "{error}");
    assert_eq!((error.stage, error.pass, state), (Stage::Agent, 2, vec!["published one".to_owned()]));
    assert!(timeline(&log).contains("root/Write. cancelled by user"), "{}", timeline(&log));
}

/// What goes wrong in a pass, if anything does, and what its result is worth.
type Fate = (Option<Part>, bool, Option<u8>);

fn fated(model: &Arc<Recorder>, fates: Vec<Fate>) -> Compound<State, String> {
    let fates = Arc::new(fates);
    let meets = move |own: Part, pass: usize| -> Result<Option<f64>, String> {
        let (part, panics, worth) = fates[pass - 1];
        match (part == Some(own), panics) {
            (false, _) => Ok(worth.map(f64::from)),
            (true, true) => panic!("{own:?} broke"),
            (true, false) => Err(format!("{own:?} broke")),
        }
    };
    let pass_of = |text: &str| text.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
    let (executes, updates, judges, builds) = (meets.clone(), meets.clone(), meets.clone(), meets);
    until(model, "never", 3)
        .executor(move |action| {
            let met = executes(Part::Executor, action.pass as usize);
            async move { met.map(|_| format!("result {}", action.pass)) }
        })
        .state_updater(move |text: &String, state: &mut State| {
            state.push(text.clone());
            updates(Part::Updater, pass_of(text)).map(drop)
        })
        .evaluator(move |text: &String| {
            let score = judges(Part::Evaluator, pass_of(text))?;
            Ok::<_, String>(Evaluation { score, ..Evaluation::failed("more") })
        })
        .build_refinement_prompt(move |refinement| {
            builds(Part::Builder, refinement.history.len()).map(|_| "Again.".to_owned())
        })
        .build()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever fails, and however: the state is that after the pass whose result is returned, and untouched if there is none.
    #[test]
    fn state_and_result_never_diverge(fates in proptest::collection::vec(
        (
            proptest::option::weighted(0.3, proptest::sample::select(vec![Part::Executor, Part::Updater, Part::Evaluator, Part::Builder])),
            any::<bool>(),
            proptest::option::of(0_u8..4),
        ),
        4,
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let model = model(&["1", "2", "3", "4"]);
        let ((result, state), _) = runtime.block_on(run(fated(&model, fates.clone()), "Write."));
        let counts = match &result {
            Ok(result) => {
                prop_assert_eq!(&result.result, &format!("result {}", result.pass));
                prop_assert_eq!(result.error.is_some(), result.exit_reason == ExitReason::RefinementFailedKeepOriginal);
                result.pass
            }
            Err(_) => {
                prop_assert!(matches!(fates[0].0, Some(Part::Executor | Part::Updater)));
                0
            }
        };
        let expected: Vec<String> = (1..=counts).map(|pass| format!("result {pass}")).collect();
        prop_assert_eq!(&state[1..], &expected[..], "{:?}", result);
    }
}
