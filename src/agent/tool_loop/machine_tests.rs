//! The decisions, each played by hand: what the machine asks for, and the history that the model would get.

use std::collections::HashSet;

use super::*;
use crate::model::ModelErrorKind;
use crate::outcome::Usage;

/// A machine that began.
fn machine(config: LoopConfig) -> Machine {
    let mut machine = Machine::new("do it", config);
    assert!(matches!(machine.start(), Action::CallModel));
    machine
}

fn prose() -> Machine {
    machine(LoopConfig::default())
}

fn structured() -> Machine {
    let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}});
    let schema = Some(Schema::compile(Arc::new(schema), "test").unwrap());
    machine(LoopConfig { schema, ..LoopConfig::default() })
}

/// A turn with this text and calls of (id, name, arguments).
fn turn(text: &str, calls: &[(&str, &str, &str)], stop: StopReason) -> Turn {
    let call = |(index, (id, name, arguments)): (u32, &(&str, &str, &str))| RawCall {
        index,
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    let calls = (0..).zip(calls).map(call).collect();
    Turn { text: text.to_owned(), calls, stop_reason: Some(stop), usage: Usage::default() }
}

fn says(text: &str) -> Turn {
    turn(text, &[], StopReason::EndTurn)
}

fn calls(calls: &[(&str, &str, &str)]) -> Turn {
    turn("", calls, StopReason::ToolCalls)
}

fn planned(action: Action) -> Vec<PlannedCall> {
    match action {
        Action::RunCalls(calls) => calls,
        other => panic!("not calls: {other:?}"),
    }
}

fn finished(action: Action) -> SubAgentOutcome {
    match action {
        Action::Finish(outcome) => outcome,
        other => panic!("not the end: {other:?}"),
    }
}

fn backs_off(action: Action) -> (u32, Delay) {
    match action {
        Action::BackOff { attempt, delay, .. } => (attempt, delay),
        other => panic!("no wait: {other:?}"),
    }
}

/// Answers all calls, and asks that the model is called next.
fn answer_all(machine: &mut Machine, calls: Vec<PlannedCall>) {
    let replies = calls.into_iter().map(|call| match call.args {
        Ok(_) => ToolReply::ok(format!("result of {}", call.id)),
        Err(reply) => reply,
    });
    let action = machine.calls_ended(replies.collect());
    assert!(matches!(action, Action::CallModel), "{action:?}");
    check(machine.history());
}

/// What every provider demands of a history: unique ids, one result for each call right after it and in the order of the
/// calls, arguments that are objects, names that are names, no message that says nothing.
fn check(history: &[ChatMessage]) {
    let (mut used, mut open) = (HashSet::new(), std::collections::VecDeque::new());
    for message in history {
        match message {
            ChatMessage::ToolResult { id, name, .. } => {
                assert_eq!(Some((id, name)), open.pop_front(), "{history:?}");
            }
            ChatMessage::User { text } => assert!(open.is_empty() && !text.is_empty(), "{history:?}"),
            ChatMessage::Assistant { text, tool_calls } => {
                assert!(open.is_empty() && !(text.is_empty() && tool_calls.is_empty()), "{history:?}");
                for call in tool_calls {
                    assert!(used.insert(&call.id) && !call.id.as_str().is_empty(), "{history:?}");
                    assert!(call.arguments.is_object() && is_tool_name(&call.name), "{history:?}");
                    open.push_back((&call.id, &call.name));
                }
            }
        }
    }
    assert!(open.is_empty(), "{history:?}");
}

fn ids(calls: &[PlannedCall]) -> Vec<&str> {
    calls.iter().map(|call| call.id.as_str()).collect()
}

fn error_of(call: &PlannedCall) -> (&str, &str) {
    let value = &call.args.as_ref().unwrap_err().for_model;
    (value["error"].as_str().unwrap(), value["message"].as_str().unwrap())
}

#[test]
fn a_turn_without_calls_is_the_answer() {
    let mut machine = prose();
    assert_eq!(finished(machine.turn_ended(says(" yes\n"))), SubAgentOutcome::completed(" yes\n"));
    assert_eq!(machine.turns(), 1);
}

#[test]
fn results_go_back_in_the_order_of_the_calls() {
    let mut machine = prose();
    let calls = planned(machine.turn_ended(turn(
        "looking",
        &[("a", "grep", r#"{"x":1}"#), ("b", "glob", "{}")],
        StopReason::ToolCalls,
    )));
    assert_eq!(ids(&calls), ["a", "b"]);
    assert_eq!(calls[0].args.as_ref().unwrap()["x"], json!(1));
    answer_all(&mut machine, calls);
    let texts: Vec<_> = machine.history().iter().map(|message| format!("{message:?}")).collect();
    assert_eq!(texts.len(), 4);
    assert!(texts[1].contains("looking") && texts[2].contains("result of a"));
    assert!(texts[3].contains("result of b"));
    // Whatever the reason says, a turn with calls is not the end.
    let more = planned(machine.turn_ended(turn("", &[("c", "grep", "{}")], StopReason::EndTurn)));
    answer_all(&mut machine, more);
    assert_eq!(finished(machine.turn_ended(says("done"))), SubAgentOutcome::completed("done"));
}

#[test]
fn c02_ids_used_twice_are_told_apart() {
    let mut machine = prose();
    let both = [("call_0", "read", r#"{"p":"A"}"#), ("call_0", "read", r#"{"p":"B"}"#)];
    let first = planned(machine.turn_ended(calls(&both)));
    assert_eq!(first[0].id.as_str(), "call_0");
    assert_ne!(first[0].id, first[1].id);
    assert!(first[1].id.as_str().starts_with("call_0_"));
    answer_all(&mut machine, first);
    // And in a later turn, also where the model takes an id that was made up here.
    let taken = ["call_0", "call_0_1", "call_0_2", "call_0_3"].map(|id| (id, "read", "{}"));
    let second = planned(machine.turn_ended(calls(&taken)));
    assert_eq!(ids(&second).into_iter().collect::<HashSet<_>>().len(), 4);
    answer_all(&mut machine, second);
}

#[test]
fn c03_missing_ids_are_minted() {
    let mut machine = prose();
    let first = planned(machine.turn_ended(calls(&[("", "read", "{}"), ("", "read", "{}")])));
    assert_eq!(ids(&first).iter().filter(|id| id.is_empty()).count(), 0);
    assert_ne!(first[0].id, first[1].id);
    answer_all(&mut machine, first);
    let second = planned(machine.turn_ended(calls(&[("", "read", "{}"), ("call_0", "read", "{}")])));
    answer_all(&mut machine, second);
}

#[test]
fn a_label_without_end_is_replaced() {
    let mut machine = prose();
    let (long, longest) = ("i".repeat(1 << 20), "i".repeat(256));
    let planned = planned(machine.turn_ended(calls(&[(&long, "read", "{}"), (&longest, "read", "{}")])));
    assert_eq!(ids(&planned), ["call_0", &longest]);
    answer_all(&mut machine, planned);
}

#[test]
fn c20_malformed_arguments_are_told_and_the_history_stays_json() {
    let long = format!("{{\"a\":{}", "x".repeat(1 << 20));
    for raw in [r#"{"a":"#, r#"{"{"x":1}"#, "[1]", "3", "\"{}\"", "{} {}", &long] {
        let mut machine = prose();
        let calls = planned(machine.turn_ended(calls(&[("a", "read", raw)])));
        let (code, message) = error_of(&calls[0]);
        assert_eq!(code, "invalid_tool_arguments");
        assert!(message.len() < 600 && message.contains("JSON object"), "{message}");
        assert!(calls[0].announced.is_empty());
        answer_all(&mut machine, calls);
    }
}

#[test]
fn c20_no_arguments_are_no_mistake() {
    for raw in ["", "  \n", "null", "{}"] {
        let mut machine = prose();
        let calls = planned(machine.turn_ended(calls(&[("a", "read", raw)])));
        assert_eq!(calls[0].args, Ok(Map::new()), "{raw:?}");
        answer_all(&mut machine, calls);
    }
}

#[test]
fn a_status_text_is_taken_out_of_the_arguments() {
    for (raw, message) in [
        (r#"{"_message":"looking","p":1}"#, Some("looking")),
        (r#"{"_message":"  ","p":1}"#, None),
        (r#"{"_message":7,"p":1}"#, None),
        (r#"{"p":1}"#, None),
    ] {
        let mut machine = prose();
        let calls = planned(machine.turn_ended(calls(&[("a", "read", raw)])));
        assert_eq!(calls[0].message.as_deref(), message);
        assert_eq!(calls[0].args.as_ref().unwrap(), &Map::from_iter([("p".to_owned(), json!(1))]));
        assert!(!calls[0].announced.contains_key("_message"));
    }
}

#[test]
fn a_name_that_is_none_stays_out_of_the_history() {
    let mut machine = prose();
    let long = "n".repeat(200);
    let names = ["", "read file", "functions.read", "läs", &long].map(|name| ("", name, "{}"));
    let calls = planned(machine.turn_ended(calls(&names)));
    let called: Vec<_> = calls.iter().map(|call| &*call.name).collect();
    assert_eq!(called[..4], ["(no name)", "read file", "functions.read", "läs"]);
    assert_eq!(called[4], format!("{}…[cut: 64 of 200 bytes]", &long[..64]));
    answer_all(&mut machine, calls);
    let ChatMessage::Assistant { tool_calls, .. } = &machine.history()[1] else { panic!() };
    let said: Vec<_> = tool_calls.iter().map(|call| &*call.name).collect();
    assert_eq!(said[..4], ["_no_name_", "read_file", "functions_read", "l_s"]);
}

#[test]
fn c15_a_turn_that_breaks_off_is_truncated_and_its_calls_are_closed() {
    for (raw, text) in [("", ""), (r#"{"prompt":"cou"#, "half"), (r#"{"prompt":"whole"}"#, "")] {
        let mut machine = prose();
        let cut = turn(text, &[("a", "run_subtask", raw)], StopReason::Missing);
        let calls = planned(machine.turn_ended(cut));
        assert_eq!(error_of(&calls[0]).0, "truncated");
        assert!(error_of(&calls[0]).1.contains(&format!("{} bytes", raw.len())));
        let replies = calls.into_iter().map(|call| call.args.unwrap_err()).collect();
        let outcome = finished(machine.calls_ended(replies));
        assert_eq!(outcome.stop_class(), StopClass::Truncated);
        assert_eq!(outcome.partial(), (!text.is_empty()).then(|| json!(text)).as_ref());
        check(machine.history());
    }
    // Without calls, with a reason that is missing or none at all.
    for stop_reason in [Some(StopReason::Missing), None] {
        let cut = Turn { stop_reason, ..says("half an ans") };
        let outcome = finished(prose().turn_ended(cut));
        assert_eq!(outcome.stop_class(), StopClass::Truncated);
        assert_eq!(outcome.partial(), Some(&json!("half an ans")));
    }
}

#[test]
fn c16_the_call_that_the_output_limit_cut_is_not_made() {
    let mut machine = prose();
    let two = [("a", "read", r#"{"p":1}"#), ("b", "run_subtask", r#"{"prompt":"cou"#)];
    let calls = planned(machine.turn_ended(turn("", &two, StopReason::Length)));
    assert!(calls[0].args.is_ok());
    assert_eq!(error_of(&calls[1]).0, "truncated");
    assert!(error_of(&calls[1]).1.contains("truncated at 14 bytes"));
    answer_all(&mut machine, calls);
    // Also one whose arguments happen to be whole: there is no telling.
    let whole = [("c", "run_subtask", r#"{"prompt":"x"}"#)];
    let calls = planned(machine.turn_ended(turn("", &whole, StopReason::Length)));
    assert_eq!(error_of(&calls[0]).0, "truncated");
    answer_all(&mut machine, calls);
    let outcome = finished(machine.turn_ended(turn("a long ans", &[], StopReason::Length)));
    let SubAgentOutcome::Stopped { stop_class, limit, partial, .. } = outcome else { panic!() };
    assert_eq!((stop_class, limit), (StopClass::Truncated, Some(LimitKind::Output)));
    assert_eq!(partial, Some(json!("a long ans")));
}

#[test]
fn withheld_and_broken_turns_fail_with_what_there_was() {
    for stop in [StopReason::ContentFilter, StopReason::Error] {
        let outcome = finished(prose().turn_ended(turn("some", &[("a", "read", "{}")], stop)));
        let SubAgentOutcome::Failed { kind, partial, .. } = outcome else { panic!() };
        assert_eq!((kind, partial), (FailureKind::Provider, Some(json!("some"))));
    }
}

#[test]
fn c10_an_empty_last_turn_leaves_the_last_text_the_answer() {
    let mut machine = prose();
    let first = turn("It is in a.rs.", &[("a", "note", "{}")], StopReason::ToolCalls);
    // C14: text with a pending call is not final.
    let calls = planned(machine.turn_ended(first));
    answer_all(&mut machine, calls);
    assert_eq!(finished(machine.turn_ended(says(" \n"))), SubAgentOutcome::completed("It is in a.rs."));
}

#[test]
fn a_blank_answer_is_a_failure() {
    let SubAgentOutcome::Failed { kind, .. } = finished(prose().turn_ended(says(" \n"))) else { panic!() };
    assert_eq!(kind, FailureKind::Empty);
}

#[test]
fn c11_the_first_success_of_a_tool_to_stop_on_is_the_result() {
    let stop_on = vec!["answer".to_owned()];
    let mut machine = machine(LoopConfig { stop_on, ..LoopConfig::default() });
    let calls = planned(machine.turn_ended(calls(&[("a", "answer", "{}"), ("b", "other", "{}")])));
    assert_eq!(calls.len(), 2);
    let failed = ToolReply::error("nope", "not yet");
    let action = machine.calls_ended(vec![failed, ToolReply::ok("other")]);
    assert!(matches!(action, Action::CallModel));
    let two = [("c", "other", "{}"), ("d", "answer", "{}"), ("e", "answer", "{}")];
    planned(machine.turn_ended(self::calls(&two)));
    let values = ["other", "first", "second"].map(ToolReply::ok).into();
    assert_eq!(finished(machine.calls_ended(values)), SubAgentOutcome::completed("first"));
    check(machine.history());
}

#[test]
fn c21_a_structured_run_is_reminded_and_then_fails() {
    let mut machine = structured();
    for _ in 0..2 {
        assert!(matches!(machine.turn_ended(says("I think it is one.")), Action::CallModel));
        check(machine.history());
    }
    let SubAgentOutcome::Failed { kind, message, partial } =
        finished(machine.turn_ended(says("One, I said.")))
    else {
        panic!()
    };
    assert_eq!((kind, partial), (FailureKind::Schema, Some(json!("One, I said."))));
    assert!(message.contains("2 reminders"));
    // A turn that says nothing leaves no empty message behind.
    let mut machine = structured();
    assert!(matches!(machine.turn_ended(says("")), Action::CallModel));
    assert_eq!(machine.history().len(), 2);
    check(machine.history());
    assert_eq!(finished(machine.turn_ended(says("{\"a\":1}"))), SubAgentOutcome::completed(json!({"a": 1})));
}

#[test]
fn c21_a_value_that_violates_is_repaired_once() {
    let mut machine = structured();
    assert!(matches!(machine.turn_ended(says("```json\n{\"a\":\"x\"}\n```")), Action::CallModel));
    let Some(ChatMessage::User { text }) = machine.history().last() else { panic!() };
    assert!(text.contains("/a") && text.contains("integer"), "{text}");
    let answer = says("Sorry:\n```json\n{\"a\":2}\n```");
    assert_eq!(finished(machine.turn_ended(answer)), SubAgentOutcome::completed(json!({"a": 2})));

    let mut machine = structured();
    assert!(matches!(machine.turn_ended(says("{}")), Action::CallModel));
    let outcome = finished(machine.turn_ended(says("{}")));
    let SubAgentOutcome::Failed { kind, message, .. } = outcome else { panic!() };
    assert_eq!(kind, FailureKind::Schema);
    assert!(message.contains("\"a\" is a required property"), "{message}");
}

#[test]
fn a_structured_run_that_never_says_anything_is_empty() {
    let mut machine = structured();
    for _ in 0..2 {
        assert!(matches!(machine.turn_ended(says("")), Action::CallModel));
    }
    let SubAgentOutcome::Failed { kind, .. } = finished(machine.turn_ended(says(""))) else { panic!() };
    assert_eq!(kind, FailureKind::Empty);
}

#[test]
fn a_failed_call_is_tried_again_with_growing_delays() {
    let mut machine = prose();
    let error = ModelError::new(ModelErrorKind::Server, "overloaded");
    let half = Duration::from_millis(500);
    assert_eq!(backs_off(machine.turn_failed(&error, false, "")), (2, Delay::UpTo(half)));
    assert!(matches!(machine.backed_off(), Action::CallModel));
    assert_eq!(backs_off(machine.turn_failed(&error, false, "")), (3, Delay::UpTo(2 * half)));
    assert!(matches!(machine.backed_off(), Action::CallModel));
    let outcome = finished(machine.turn_failed(&error, false, ""));
    let SubAgentOutcome::Failed { kind, message, partial } = outcome else { panic!() };
    assert_eq!((kind, partial), (FailureKind::Provider, None));
    assert_eq!(message, "the model call failed (server): overloaded");
    // Failed attempts are no turns, and a turn that ends forgives them.
    assert_eq!(machine.turns(), 0);
    let mut machine = prose();
    for round in 0..3 {
        let id = format!("c{round}");
        assert_eq!(backs_off(machine.turn_failed(&error, false, "")).0, 2);
        let calls = planned(machine.turn_ended(calls(&[(&id, "read", "{}")])));
        answer_all(&mut machine, calls);
    }
}

#[test]
fn a_delay_that_the_provider_asks_for_is_kept() {
    let retry_after = Some(Duration::from_secs(7));
    let error = ModelError { retry_after, ..ModelError::new(ModelErrorKind::RateLimit, "slow down") };
    assert_eq!(backs_off(prose().turn_failed(&error, false, "")), (2, Delay::Asked(Duration::from_secs(7))));
}

#[test]
fn what_cannot_succeed_or_was_begun_is_not_tried_again() {
    for kind in [
        ModelErrorKind::Auth,
        ModelErrorKind::ContextLength,
        ModelErrorKind::BadRequest,
        ModelErrorKind::Protocol,
        ModelErrorKind::Exhausted,
    ] {
        finished(prose().turn_failed(&ModelError::new(kind, "no"), false, ""));
    }
    // C17: after some chunks, what there was is kept.
    let error = ModelError::new(ModelErrorKind::Server, "broke");
    let outcome = finished(prose().turn_failed(&error, true, "so far"));
    assert_eq!(outcome.partial(), Some(&json!("so far")));
    let one = LoopConfig { max_attempts: 1, ..LoopConfig::default() };
    finished(machine(one).turn_failed(&error, false, ""));
}

#[test]
fn extreme_numbers_of_attempts_do_not_overflow() {
    let first_delay = Duration::MAX;
    let mut machine = machine(LoopConfig { max_attempts: u32::MAX, first_delay, ..LoopConfig::default() });
    let error = ModelError::new(ModelErrorKind::Network, "down");
    for _ in 0..100 {
        backs_off(machine.turn_failed(&error, false, ""));
    }
}

#[test]
fn turns_are_limited() {
    let mut machine = machine(LoopConfig { max_turns: 2, ..LoopConfig::default() });
    let first = planned(machine.turn_ended(turn("first", &[("a", "read", "{}")], StopReason::ToolCalls)));
    answer_all(&mut machine, first);
    planned(machine.turn_ended(calls(&[("b", "read", "{}")])));
    let outcome = finished(machine.calls_ended(vec![ToolReply::ok("x")]));
    let SubAgentOutcome::Stopped { stop_class, limit, partial, .. } = outcome else { panic!() };
    assert_eq!((stop_class, limit), (StopClass::MaxSteps, Some(LimitKind::Turns)));
    assert_eq!(partial, Some(json!("first")));
    check(machine.history());
    // 0 means none at all; an answer in the last turn is an answer.
    let none = LoopConfig { max_turns: 0, ..LoopConfig::default() };
    finished(Machine::new("x", none).start());
    let one = LoopConfig { max_turns: 1, ..LoopConfig::default() };
    let mut machine = self::machine(one);
    assert!(finished(machine.turn_ended(says("done"))).is_ok());
}

#[test]
fn reminders_and_repairs_are_turns() {
    let mut machine = structured();
    machine.config.max_turns = 2;
    assert!(matches!(machine.turn_ended(says("hm")), Action::CallModel));
    let outcome = finished(machine.turn_ended(says("hm hm")));
    assert_eq!(outcome.stop_class(), StopClass::MaxSteps);
    assert_eq!(outcome.partial(), Some(&json!("hm hm")));
}

#[test]
fn a_budget_that_is_used_up_stops_the_run_with_what_there_is() {
    let mut machine = prose();
    let calls = planned(machine.turn_ended(turn("so far", &[("a", "read", "{}")], StopReason::ToolCalls)));
    answer_all(&mut machine, calls);
    let outcome = finished(machine.exhausted(LimitKind::Tokens));
    assert_eq!((outcome.stop_class(), outcome.partial()), (StopClass::Budget, Some(&json!("so far"))));
}

#[test]
fn the_history_is_not_copied_while_nobody_else_holds_it() {
    let mut machine = prose();
    let before = Arc::as_ptr(machine.history());
    for round in 0..50 {
        let id = format!("c{round}");
        let calls = planned(machine.turn_ended(calls(&[(&id, "read", "{}")])));
        if round < 18 {
            answer_all(&mut machine, calls);
        } else {
            break;
        }
    }
    assert_eq!(Arc::as_ptr(machine.history()), before);
}
