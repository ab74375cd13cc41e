//! Asking an agent, and finding out how sure it is.

use futures::future::join_all;
use serde_json::{Value, json};

use super::agreement::agreement;
use super::enriched::{Confidence, Enriched, texts};
use super::protocol::{ConfidenceProtocol, StructuredFields};
use super::rating;
use crate::frame::Parent;
use crate::frame::asking::{Asking, PassAgent};
use crate::frame::failure::StepFailure;

/// Asks an agent, as a child of the parent's run, and finds out by `protocol` how sure it is; without one the record has the answer
/// alone. A protocol that fails leaves the answer as it is, with no figure and the reason under `protocol_error`.
///
/// # Errors
///
/// What the agent failed with. A cancel or an abort is one also where it meets the protocol.
///
/// # Cancel safety
///
/// Dropping it cancels the runs.
pub async fn enrich(
    agent: &dyn PassAgent,
    asking: &Asking,
    parent: &Parent,
    protocol: Option<&ConfidenceProtocol>,
) -> Result<Enriched, StepFailure> {
    let mut enriched = match protocol {
        Some(ConfidenceProtocol::Ensemble(samples)) => {
            return ensemble(agent, asking, parent, samples.get()).await;
        }
        _ => Enriched::new(agent.ask(asking, parent).await?),
    };
    match protocol {
        Some(ConfidenceProtocol::Structured(fields)) => structured(fields, &mut enriched),
        Some(ConfidenceProtocol::SelfRating) => self_rating(agent, asking, parent, &mut enriched).await?,
        Some(ConfidenceProtocol::Ensemble(_)) | None => {}
    }
    enriched.protocol_name = protocol.map(|protocol| protocol.name().to_owned());
    Ok(enriched)
}

fn structured(fields: &StructuredFields, enriched: &mut Enriched) {
    let output = &enriched.output;
    let said = |key: &str| if key.starts_with('/') { output.pointer(key) } else { output.get(key) };
    let confidence = said(&fields.confidence).and_then(Confidence::read);
    let targets = texts(said(&fields.uncertainty_targets));
    let boundary = said(&fields.capability_boundary) == Some(&Value::Bool(true));
    enriched.confidence = confidence;
    enriched.uncertainty_targets = targets;
    enriched.capability_boundary = boundary;
}

async fn self_rating(
    agent: &dyn PassAgent,
    asking: &Asking,
    parent: &Parent,
    enriched: &mut Enriched,
) -> Result<(), StepFailure> {
    let rated = match agent.rater() {
        None => Err("the agent has no model that could rate".to_owned()),
        Some(rater) => {
            let brief = rating::brief(&asking.prompt, &enriched.output);
            let asking =
                Asking { title: Some(format!("rating of {}", asking.title())), ..Asking::new(brief) };
            match rater.ask(&asking, parent).await {
                Ok(Value::String(text)) => rating::read(&text, enriched),
                Ok(_) => Err("the rating is no text".to_owned()),
                Err(failure) if failure.must_end() => return Err(failure),
                Err(failure) => Err(failure.to_string()),
            }
        }
    };
    if let Err(reason) = rated {
        enriched.metadata.insert("protocol_error".to_owned(), json!(reason));
    }
    Ok(())
}

async fn ensemble(
    agent: &dyn PassAgent,
    asking: &Asking,
    parent: &Parent,
    k: u32,
) -> Result<Enriched, StepFailure> {
    let branches: Vec<Asking> = (1..=k).map(|branch| asking.branch(branch, k)).collect();
    let answers = join_all(branches.iter().map(|asking| agent.ask(asking, parent))).await;
    let mut samples = Vec::new();
    for (place, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(answer) => samples.push(answer),
            // The first is the answer; the others only say how sure it is.
            Err(failure) if place == 0 || failure.must_end() => return Err(failure),
            Err(_) => {}
        }
    }
    let confidence = if samples.len() < 2 { None } else { Confidence::new(agreement(&samples)) };
    let count = samples.len();
    let mut enriched = Enriched::new(samples.into_iter().next().unwrap_or_default());
    enriched.confidence = confidence;
    enriched.protocol_name = Some("ensemble".to_owned());
    enriched.metadata.insert("sample_count".to_owned(), json!(count));
    enriched.metadata.insert("k".to_owned(), json!(k));
    Ok(enriched)
}
