//! A run that plans: a search for each group of terms of the objective, and a last step that joins what they find.

use serde_json::{Value, json};

use super::model::{Conversation, Turn, tagged};
use super::terms::{self, FOR};
use super::{answer, results, root};

const LIST: &str = "list_nodes";
const ADD_NODE: &str = "add_node";
const ADD_EDGE: &str = "add_edge";
const FINISH: &str = "finish_graph";
const FINISH_PLAN: &str = "finish_plan";

/// The id of the last step.
const ANSWER: &str = "answer";
/// A longer id says no more.
const LONGEST_ID: usize = 40;

const WHAT_THIS_IS: &str = "I plan by a keyword heuristic, without a language model: a search for each topic of the objective, then an answer.\n";

/// The next turn of a planner; none if this run is none.
pub(super) fn next(conversation: &Conversation<'_>) -> Option<Turn> {
    let finisher = [FINISH, FINISH_PLAN].into_iter().find(|tool| conversation.may_call(tool))?;
    let objective = tagged(conversation.task, "<objective>", "</objective>").unwrap_or(conversation.task);
    let steps = steps(objective);
    if steps.is_empty() {
        return Some(Turn::say(answer::no_terms()));
    }
    // What was refused once is refused again: this model does not mend.
    let refused = |tool| conversation.results(tool).find(|result| result.is_error);
    if let Some(refused) = [ADD_NODE, ADD_EDGE, FINISH, FINISH_PLAN].into_iter().find_map(refused) {
        let why = results::failure(refused.content);
        return Some(Turn::say([format!("This heuristic cannot plan here: {why}\n")]));
    }
    if finisher == FINISH_PLAN {
        return Some(call(WHAT_THIS_IS, vec![(FINISH_PLAN, tasks(objective, &steps))]));
    }
    let Some(list) = conversation.results(LIST).next() else {
        return Some(call(WHAT_THIS_IS, vec![(LIST, json!({}))]));
    };
    let can_search = agents(list.content).iter().any(|name| name == "search");
    let graph = graph(objective, &steps, can_search);
    if conversation.results(ADD_NODE).next().is_none() {
        return Some(call("", graph.nodes.into_iter().map(|node| (ADD_NODE, node)).collect()));
    }
    if !graph.edges.is_empty() && conversation.results(ADD_EDGE).next().is_none() {
        return Some(call("", graph.edges.into_iter().map(|edge| (ADD_EDGE, edge)).collect()));
    }
    Some(call("", vec![(FINISH, json!({}))]))
}

fn call(text: &str, calls: Vec<(&str, Value)>) -> Turn {
    let text = if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
    Turn { text, calls: calls.into_iter().map(|(tool, arguments)| (tool.to_owned(), arguments)).collect() }
}

/// Id and query of each search.
fn steps(objective: &str) -> Vec<(String, String)> {
    let terms = terms::of_task(objective);
    if terms.focus.is_empty() {
        return Vec::new();
    }
    let mut steps: Vec<(String, String)> = Vec::new();
    for query in root::queries(objective, &terms) {
        let slug = slug(query.split_once(FOR).map_or(query.as_str(), |(head, _)| head));
        let is_taken = |id: &String| id == ANSWER || steps.iter().any(|(taken, _)| taken == id);
        let mut id = slug.clone();
        let mut number = 2;
        while is_taken(&id) {
            id = format!("{slug}-{number}");
            number += 1;
        }
        steps.push((id, query));
    }
    steps
}

fn slug(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' };
    let words: String = text.chars().map(letter).collect();
    let slug: String =
        words.split_whitespace().collect::<Vec<_>>().join("-").chars().take(LONGEST_ID).collect();
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "search".to_owned() } else { slug.to_owned() }
}

/// The names of the agents that `list_nodes` gave.
fn agents(list: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(list).unwrap_or_default();
    let agents = list.get("agents").and_then(Value::as_array).into_iter().flatten();
    agents.filter_map(|agent| agent.get("name")?.as_str().map(str::to_owned)).collect()
}

struct Graph {
    nodes: Vec<Value>,
    edges: Vec<Value>,
}

fn graph(objective: &str, steps: &[(String, String)], can_search: bool) -> Graph {
    if !can_search {
        return Graph {
            nodes: vec![json!({ "id": ANSWER, "agent": "agent", "prompt": objective })],
            edges: Vec::new(),
        };
    }
    let mut nodes: Vec<Value> =
        steps.iter().map(|(id, query)| json!({ "id": id, "agent": "search", "prompt": query })).collect();
    nodes.push(json!({ "id": ANSWER, "agent": "agent", "prompt": last_prompt(objective) }));
    let edges = steps.iter().map(|(id, _)| json!({ "from": id, "to": ANSWER })).collect();
    Graph { nodes, edges }
}

fn last_prompt(objective: &str) -> String {
    format!(
        "Answer this question from the inputs, with the places that they name.\n\n<question>\n{objective}\n</question>"
    )
}

fn tasks(objective: &str, steps: &[(String, String)]) -> Value {
    let none: [&str; 0] = [];
    let task = |id: &str, title: String, depends_on: Value, instructions: String| {
        let step = json!({ "id": format!("{id}-1"), "instructions": instructions, "depends_on": none });
        json!({ "id": id, "title": title, "depends_on": depends_on, "steps": [step] })
    };
    let searches = steps.iter().map(|(id, query)| {
        task(id, format!("Search: {id}"), json!(none), format!("Search the workspace for {query}."))
    });
    let ids: Vec<&str> = steps.iter().map(|(id, _)| id.as_str()).collect();
    let last = task(ANSWER, "Answer".to_owned(), json!(ids), last_prompt(objective));
    let tasks: Vec<Value> = searches.chain([last]).collect();
    let title = results::shortened(&terms::one_line(objective.trim()), 80);
    json!({ "title": title, "tasks": tasks })
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{play, request, tools, turn};
    use super::*;
    use crate::model::ChatMessage;

    const ALL: [&str; 4] = [LIST, ADD_NODE, ADD_EDGE, FINISH];

    fn answers(
        agents: &'static [&'static str],
        finish: &'static str,
    ) -> impl Fn(&str, &Value) -> Option<(String, bool)> {
        move |name, _| {
            let agents: Vec<Value> = agents.iter().map(|name| json!({ "name": name })).collect();
            Some(match name {
                LIST => (json!({ "agents": agents, "tools": [] }).to_string(), false),
                FINISH if !finish.is_empty() => {
                    (json!({"error": "invalid_graph", "message": finish}).to_string(), true)
                }
                _ => ("ok".to_owned(), false),
            })
        }
    }

    #[test]
    fn a_graph_is_built_in_four_turns() {
        let mut log = Vec::new();
        let task = "Plan.\n<objective>\nwhere is cancellation handled, and what tests it?\n</objective>\n";
        let text = play(task, &ALL, &answers(&["agent", "search"], "a cycle"), &mut log);
        assert_eq!(text, "This heuristic cannot plan here: a cycle\n");
        let calls: Vec<&str> = log.iter().filter_map(|line| line.strip_prefix("  ")).collect();
        let names: Vec<&str> = calls.iter().map(|call| call.split(' ').next().unwrap()).collect();
        assert_eq!(names, [LIST, ADD_NODE, ADD_NODE, ADD_NODE, ADD_EDGE, ADD_EDGE, FINISH]);
        assert!(
            calls[1].contains("\"id\":\"cancellation\"")
                && calls[2].contains("\"id\":\"tests-of-cancellation\"")
        );
        assert!(calls[5].contains("\"from\":\"tests-of-cancellation\",\"to\":\"answer\""), "{calls:#?}");
        assert!(log[0].contains("keyword heuristic"));
    }

    #[test]
    fn without_a_search_there_is_one_node() {
        let mut log = Vec::new();
        play("<objective>\nwhere is retry?\n</objective>", &ALL, &answers(&["agent"], "no"), &mut log);
        let nodes = log.iter().filter(|line| line.contains(ADD_NODE)).count();
        assert_eq!((nodes, log.iter().any(|line| line.contains(ADD_EDGE))), (1, false));
    }

    #[test]
    fn tasks_and_an_objective_without_words() {
        let ask = |task: &str| {
            turn(request(task, vec![ChatMessage::User { text: task.into() }], tools(&[FINISH_PLAN])))
        };
        let (_, calls) = ask("<objective>\nwhere is retry handled, and what tests it?\n</objective>");
        let tasks = calls[0].arguments["tasks"].as_array().unwrap();
        assert_eq!((tasks.len(), &tasks[2]["depends_on"]), (3, &json!(["retry", "tests-of-retry"])));
        let (text, calls) = ask("<objective>\n???\n</objective>");
        assert!(text.starts_with("There is no word") && calls.is_empty());
    }
}
