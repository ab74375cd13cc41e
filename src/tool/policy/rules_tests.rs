use futures::future::BoxFuture;
use serde_json::json;

use super::*;
use crate::model::ToolSpec;
use crate::tool::{ToolContext, ToolReply};

struct Does(ToolSpec, Access, Risk);

/// A tool by which an agent answers.
struct Answers(Does);

impl Tool for Answers {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn is_answer(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        self.0.call(args, cx)
    }
}

fn does(access: Access) -> Does {
    let spec = ToolSpec { name: "it".into(), description: "Does it.".into(), parameters: json!({}) };
    Does(spec, access, if access == Access::Write { Risk::Medium } else { Risk::Low })
}

impl Tool for Does {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn access(&self) -> Access {
        self.1
    }

    fn risk(&self, _: &Map<String, Value>) -> Risk {
        self.2
    }

    fn call<'a>(&'a self, _: Map<String, Value>, _: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(std::future::ready(ToolReply::ok("done")))
    }
}

fn effect(policy: &Policy, tool: &Does, args: &Value) -> Effect {
    policy.rule_on(tool, args.as_object().unwrap(), "agent").effect
}

fn with(policy: Policy, effect: Effect, rule: &str) -> Policy {
    policy.with(effect, rule.parse().unwrap())
}

const ALL: [Access; 3] = [Access::Read, Access::Write, Access::Spawn];

/// An agent cannot have another one do what it may not; what it may, it alone may.
#[test]
fn i19_what_is_denied_to_an_agent_is_denied_below_it() {
    let args = Map::new();
    let tool = does(Access::Write);
    let effect = |rule: (Effect, &str), agents: &[&str]| {
        let policy = with(Policy::default(), rule.0, rule.1);
        let best = policy.at_best(&tool, agents);
        assert_eq!(policy.ruling(Subject { tool: &tool, args: &args, agents }).effect, best);
        best
    };
    for strict in [Effect::Deny, Effect::Ask] {
        assert_eq!(effect((strict, "reviewer:it"), &["helper", "reviewer", "agent"]), strict);
    }
    assert_eq!(effect((Effect::Deny, "reviewer:it"), &["agent"]), Effect::Ask);
    assert_eq!(effect((Effect::Allow, "reviewer:it"), &["reviewer", "agent"]), Effect::Allow);
    assert_eq!(effect((Effect::Allow, "reviewer:it"), &["helper", "reviewer", "agent"]), Effect::Ask);
}

#[test]
fn without_a_word_what_changes_something_or_is_risky_is_asked_for() {
    let policy = Policy::default();
    let effects = ALL.map(|access| effect(&policy, &does(access), &json!({})));
    assert_eq!(effects, [Effect::Allow, Effect::Ask, Effect::Allow]);
    let risky = ALL.map(|access| effect(&policy, &Does(does(access).0, access, Risk::High), &json!({})));
    assert_eq!(risky, [Effect::Ask; 3]);
    let open =
        ALL.map(|access| effect(&Policy::open(), &Does(does(access).0, access, Risk::High), &json!({})));
    assert_eq!(open, [Effect::Allow; 3]);
}

/// An agent of which all tools are denied can still say how it ended; who wants to take that from it, too, has to say so.
#[test]
fn a_pattern_for_tools_leaves_out_the_one_by_which_an_agent_answers() {
    let (other, answers, args) = (does(Access::Read), Answers(does(Access::Read)), Map::new());
    for rule in ["*", "agent:*", "*t", "i?", "{it,that}", "*(path=**)"] {
        for whose in [Effect::Deny, Effect::Ask] {
            let policy = with(Policy::default(), whose, rule);
            let path = Map::from_iter([("path".to_owned(), json!("a"))]);
            let effects =
                [&other as &dyn Tool, &answers].map(|tool| policy.rule_on(tool, &path, "agent").effect);
            assert_eq!(effects, [whose, Effect::Allow], "{rule}");
            assert_eq!(policy.at_best(&answers, &["agent"]), Effect::Allow);
        }
    }
    for rule in ["it", "agent:it", "a*:it"] {
        let policy = with(Policy::default(), Effect::Deny, rule);
        assert_eq!(policy.rule_on(&answers, &args, "agent").effect, Effect::Deny, "{rule}");
        assert_eq!(policy.at_best(&answers, &["agent"]), Effect::Deny);
    }
}

#[test]
fn a_denial_wins_over_an_ask_and_that_over_a_permission() {
    let tool = does(Access::Read);
    let policy = Policy::default().allow(["it"]);
    assert_eq!(effect(&policy, &does(Access::Write), &json!({})), Effect::Allow);
    let policy = policy.ask(["it"]);
    assert_eq!(effect(&policy, &tool, &json!({})), Effect::Ask);
    let policy = policy.deny(["it", "that"]).allow(["it"]);
    assert_eq!(effect(&policy, &tool, &json!({})), Effect::Deny);
    let rules: Vec<&str> = policy.rules().map(Rule::as_str).collect();
    assert_eq!(rules, ["it", "it", "it", "that", "it"]);
}

#[test]
fn rules_on_arguments_cannot_be_walked_around() {
    let tool = does(Access::Write);
    let policy = with(Policy::default(), Effect::Allow, "it(path=docs/**)");
    let policy = with(policy, Effect::Deny, "it(path=**/.env)");
    for (path, expected) in [
        ("docs/a.md", Effect::Allow),
        ("src/a.rs", Effect::Ask),
        // Permitted only if both readings are.
        ("docs/../src/a.rs", Effect::Ask),
        ("docs/./a.md", Effect::Allow),
        // Forbidden if either is.
        ("docs/.env", Effect::Deny),
        ("docs/x/../.env", Effect::Deny),
    ] {
        assert_eq!(effect(&policy, &tool, &json!({ "path": path })), expected, "{path}");
    }
    assert_eq!(effect(&policy, &tool, &json!({})), Effect::Ask);
}

#[test]
fn a_policy_only_narrows() {
    let tool = does(Access::Write);
    let parent = Policy::default().allow(["it"]);
    let same = parent.narrowed_by(&Policy::open());
    assert_eq!(effect(&same, &tool, &json!({})), Effect::Allow);
    let child = parent.narrowed_by(&with(Policy::open(), Effect::Deny, "agent:it"));
    assert_eq!(effect(&child, &tool, &json!({})), Effect::Deny);
    // What a child's policy allows does not count against its parent's.
    let child = Policy::default().deny(["it"]).narrowed_by(&Policy::open().allow(["it"]));
    assert_eq!(effect(&child, &tool, &json!({})), Effect::Deny);
}

#[test]
fn a_tool_is_offered_if_some_call_of_it_may_be_made() {
    let (read, write) = (does(Access::Read), does(Access::Write));
    let best = |policy: &Policy, tool: &Does| policy.at_best(tool, &["agent"]);
    assert_eq!(best(&Policy::default(), &read), Effect::Allow);
    assert_eq!(best(&Policy::default(), &write), Effect::Ask);
    assert_eq!(best(&with(Policy::default(), Effect::Allow, "it(path=docs/**)"), &write), Effect::Allow);
    assert_eq!(best(&with(Policy::default(), Effect::Deny, "it(path=docs/**)"), &read), Effect::Allow);
    assert_eq!(best(&Policy::default().deny(["it"]), &read), Effect::Deny);
    assert_eq!(best(&with(Policy::default(), Effect::Deny, "other:it"), &read), Effect::Allow);
    let narrowed = Policy::default().allow(["it"]).narrowed_by(&Policy::open().ask(["it"]));
    assert_eq!(best(&narrowed, &write), Effect::Ask);
}

/// A list of tools only takes away, wherever it stands, and says whose it is.
#[test]
fn a_list_denies_what_is_not_on_it() {
    let (reads, args) = (does(Access::Read), Map::new());
    let ruling = |policy: &Policy, tool: &Does| {
        let ruling = policy.rule_on(tool, &args, "agent");
        (ruling.effect, ruling.off_list_of)
    };
    let (on_it, off_it) = (Policy::only("a", ["it", "other"]), Policy::only("b", ["other"]));
    assert_eq!(ruling(&Policy::default().narrowed_by(&on_it), &reads), (Effect::Allow, None));
    // What changes something is asked for all the same, and what is denied stays so.
    assert_eq!(ruling(&Policy::default().narrowed_by(&on_it), &does(Access::Write)), (Effect::Ask, None));
    assert_eq!(ruling(&on_it.clone().deny(["it"]), &reads), (Effect::Deny, None));
    for policy in [on_it.narrowed_by(&off_it), off_it.narrowed_by(&on_it), off_it.clone().allow(["it"])] {
        assert_eq!(ruling(&policy, &reads), (Effect::Deny, Some("b".into())));
        assert_eq!(policy.at_best(&reads, &["agent"]), Effect::Deny);
    }
}
