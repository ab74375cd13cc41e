//! What scripts pass to `agent`, what of it counts, and the same in a run that plans its script first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use anabranch::agent::codeact::CodeAct;
use anabranch::agent::sandbox::{Ask, Ended, GuestEvent, HostReply, Program, Sandbox, Session};
use anabranch::agent::script::{ScriptLimits, ScriptPlanner, ScriptRun};
use anabranch::message::MessageBody;
use anabranch::testing::TestRoot;
use anabranch::tool::Producer;
use anabranch::{Agent, ProcessingMessage, SubAgentOutcome};
use serde_json::{Value, json};

use crate::stage::{Recorder, all_tools, calls};

/// What came of a producer on a root of its own, whose agents act by code and answer.
struct Played {
    outcome: SubAgentOutcome,
    log: Vec<ProcessingMessage>,
    model: Arc<Recorder>,
}

async fn play(producer: impl Producer, agents: Value) -> Played {
    let model = Recorder::new(&agents);
    let test = TestRoot::new();
    let agent = Agent::with_producer(Arc::<Recorder>::clone(&model), Arc::new(CodeAct::default()));
    let run = agent.tools(all_tools()).run_with(Arc::new(producer), test.root(), "find out");
    let outcome = run.settle().await;
    Played { outcome, log: test.finish(), model }
}

async fn script(code: &str, max_agent_calls: u32) -> Played {
    let limits = ScriptLimits { max_agent_calls, ..ScriptLimits::default() };
    play(ScriptRun::new(code).with_limits(limits), json!([{ "turns": [{ "text": "an answer" }] }])).await
}

impl Played {
    fn result(&self) -> &Value {
        self.outcome.result().unwrap_or_else(|| panic!("{:?}", self.outcome))
    }

    /// How many agents the host says that it was asked for.
    fn counted(&self) -> String {
        let mut lines = self.log.iter().rev().filter_map(|message| match message.body() {
            MessageBody::LogUpdate(line) => line.content.strip_prefix("the script ends, after "),
            _ => None,
        });
        lines.next().unwrap_or_default().to_owned()
    }
}

#[tokio::test]
async fn a_call_that_is_refused_for_what_it_passes_spends_nothing() {
    let code = "const cyclic = {}; cyclic.c = cyclic;
        const bad = [[], [{}, ['chaos_hang'], 'label'], 'label', 5, true, () => 1, Symbol('s'), 5n, new Map([['label', 'x']]), new Date(0), Promise.resolve({}),
            { tool: 'x' }, { tools: 'chaos_hang' }, { tools: [5] }, { tools: ['no_such_tool'] }, { tools: { 0: 'chaos_hang' } },
            { schema: 'x' }, { schema: { type: 5 } }, { label: 5 }, { label: () => 1 }, cyclic, { label: 5n }, { get label() { throw new Error('mine') } }];
        const seen = [];
        for (const options of bad) {
            let call; try { call = agent('work', options) } catch (error) { call = Promise.reject(error) }
            const at = [budget.agentCalls(), budget.remainingCalls()];
            try { await call; seen.push('fine') } catch (error) { seen.push([error.code ?? error.name, ...at, budget.agentCalls()]) }
        }
        for (const prompt of [undefined, null, '', '  ', 5, {}, Symbol('s')]) {
            try { await agent(prompt); seen.push('fine') } catch (error) { seen.push([error.code, 0, 7, budget.agentCalls()]) }
        }
        return seen";
    let played = script(code, 7).await;
    let seen = played.result().as_array().unwrap();
    assert_eq!(seen.len(), 30);
    for one in seen {
        assert_eq!(one.as_array().map(|one| &one[1..]), Some(&[json!(0), json!(7), json!(0)][..]), "{one}");
    }
    let codes: Vec<&str> = seen.iter().filter_map(|one| one[0].as_str()).collect();
    assert_eq!(codes[..14], ["invalid_options"; 14]);
    let rest = [
        "unknown_tool",
        "invalid_options",
        "invalid_schema",
        "invalid_schema",
        "invalid_options",
        "invalid_options",
    ];
    assert_eq!(codes[14..20], rest);
    assert_eq!(codes[20..23], ["TypeError", "TypeError", "Error"]);
    assert_eq!(codes[23..], ["missing_prompt"; 7]);
    assert_eq!(played.counted(), "0 agent calls");
    assert!(played.model.requests().is_empty());
}

#[tokio::test]
async fn the_count_is_the_hosts_in_the_same_tick_and_after_refusals() {
    let code = "const counts = [budget.agentCalls()]; const look = () => counts.push(budget.agentCalls());
        const first = agent('a', { label: null, tools: [], schema: undefined }); look();
        const second = agent('b', { toolz: [] }).catch(error => error.code); look();
        const third = agent('c', null); look();
        const fourth = agent('d').catch(error => error.code); look();
        const large = agent('x'.repeat(3 << 20)).catch(error => error.code); look();
        const all = await Promise.all([first, second, third, fourth, large]); look();
        return [counts, all, budget.remainingCalls()]";
    let played = script(code, 2).await;
    let all = json!([
        "an answer",
        "invalid_options",
        "an answer",
        "max_agent_calls_reached",
        "max_agent_calls_reached"
    ]);
    assert_eq!(played.result(), &json!([[0, 1, 1, 2, 2, 2, 2], all, 0]));
    assert_eq!(played.counted(), "2 agent calls");
    // What cannot be passed is no call either.
    let code = "const large = agent('x'.repeat(3 << 20)).catch(error => error.code); return [budget.agentCalls(), await large, await agent('y'), budget.agentCalls()]";
    let played = script(code, 2).await;
    assert_eq!(played.result(), &json!([0, "too_large", "an answer", 1]));
    assert_eq!(played.counted(), "1 agent calls");
}

#[tokio::test]
async fn an_agent_with_an_empty_list_has_no_tools_and_one_with_names_has_those() {
    let code = "return [await agent('a', { label: 'none', tools: [] }), await agent('b', { label: 'one', tools: ['chaos_sleep'] })]";
    let played = script(code, 2).await;
    assert_eq!(played.result(), &json!(["an answer", "an answer"]));
    assert_eq!(played.model.offered("none"), ["execute_code"]);
    let system = played.model.of("one")[0].system.clone().unwrap();
    assert!(system.contains("chaos_sleep") && !system.contains("chaos_hang"), "{system}");
}

#[tokio::test]
async fn a_schema_may_nest_and_one_that_nests_without_end_is_refused_wherever_the_program_stands() {
    let code = "const nested = levels => { let schema = true; for (let i = 0; i < levels; i++) schema = { unevaluatedProperties: schema }; return schema };
        const codes = [];
        for (const levels of [63, 64, 120, 200]) { try { await agent('x', { schema: nested(levels) }) } catch (error) { codes.push(error.code ?? error.name) } }
        const deep = () => { try { return deep() } catch { return agent('x', { schema: nested(60) }) } };
        return [codes, await deep().catch(error => error.code), budget.agentCalls()]";
    let played = script(code, 9).await;
    // An answer in prose is no such value; what is too deep to be read is no schema at all.
    let codes = ["agent_failed", "invalid_schema", "invalid_schema", "invalid_options"];
    assert_eq!(played.result(), &json!([codes, "agent_failed", 2]));
}

/// A sandbox whose guest asks for these agents and ends, whatever it may.
#[derive(Debug)]
struct Asks(&'static [(&'static str, &'static str)]);

struct AsksSession {
    says: VecDeque<GuestEvent>,
    answered: u64,
}

impl Sandbox for Asks {
    fn start(&self, _: Program) -> Box<dyn Session> {
        let asks = self.0.iter().zip(0..).map(|((prompt, options), id)| {
            let ask = Ask::Agent { prompt: (*prompt).into(), options: (*options).into() };
            GuestEvent::Ask { id, ask }
        });
        let waits = GuestEvent::Waiting { answered: 0 };
        Box::new(AsksSession { says: asks.chain([waits]).collect(), answered: 0 })
    }
}

impl Session for AsksSession {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Option<GuestEvent>> {
        match self.says.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None => Poll::Pending,
        }
    }

    fn reply(&mut self, _: HostReply) {
        self.answered += 1;
        let ended = Ended { result: Ok(self.answered.to_string()), lines_left_out: 0 };
        let next = GuestEvent::Waiting { answered: self.answered };
        self.says.push_back(if self.answered == 4 { GuestEvent::Ended(ended) } else { next });
    }

    fn poll_closed(&mut self, _: &mut Context<'_>) -> Poll<()> {
        self.says.clear();
        Poll::Ready(())
    }
}

#[tokio::test]
async fn the_host_counts_by_itself_what_a_guest_claims() {
    let asks = Asks(&[("a", "[]"), ("b", "{\"tool\":1}"), ("c", ""), ("d", "null")]);
    let limits = ScriptLimits { max_agent_calls: 1, ..ScriptLimits::default() };
    let run = ScriptRun::new("").with_limits(limits).in_sandbox(Arc::new(asks));
    let played = play(run, json!([{ "turns": [{ "text": "an answer" }] }])).await;
    assert_eq!(played.counted(), "1 agent calls");
    assert_eq!(played.model.requests().len(), 1);
}

/// A run whose producer is a script settles with what the script returns, and the steps of its agents are in the log. Where the script is
/// planned first, so is the planning; and a planner that hands in none that could run has failed, and says so.
#[tokio::test]
async fn a_run_by_script_gives_its_value_and_shows_the_steps_and_the_planning() {
    let code = "return { answer: await agent('Say something.') }";
    let answers = json!([{ "turns": [{ "text": "an answer" }] }]);
    let steps = |played: &Played| {
        let steps = played.log.iter().filter_map(|message| match message.body() {
            MessageBody::StepResult(step) => Some(step.result.clone()),
            _ => None,
        });
        steps.collect::<Vec<_>>()
    };
    let planning = |played: &Played| {
        let updates = played.log.iter().filter_map(|message| match message.body() {
            MessageBody::PlanningUpdate(update) => Some(format!("{} {}", update.phase, update.status)),
            _ => None,
        });
        updates.collect::<Vec<_>>()
    };
    let given = play(ScriptRun::new(code), answers.clone()).await;
    assert_eq!(given.result(), &json!({ "answer": "an answer" }));
    assert_eq!((steps(&given), planning(&given)), (vec![json!("an answer")], vec![]));

    let planner = ScriptPlanner::new(ScriptRun::new(""), json!({}));
    let submit = |script: &str| calls("submit_script", json!({ "script": script }));
    let agents = json!([{ "when": { "depth": 0 }, "turns": [submit(code)] }, answers[0]]);
    let planned = play(planner.clone(), agents).await;
    assert_eq!(
        planned.result(),
        &json!({ "script": code, "executed": true, "result": { "answer": "an answer" } })
    );
    assert_eq!(steps(&planned), [json!("an answer")]);
    assert_eq!(planning(&planned), ["initialization started", "generation running", "complete success"]);

    let turns = [
        submit("const x = ;"),
        json!({ "text": "I give up." }),
        json!({ "text": "No." }),
        json!({ "text": "No." }),
    ];
    let failed = play(planner, json!([{ "turns": turns }])).await;
    let text = failed.outcome.error_text().unwrap();
    assert!(text.contains("the model ended its work without submit_script"), "{text}");
    assert_eq!(planning(&failed).last().unwrap(), "complete failed");
    assert!(steps(&failed).is_empty());
}
