//! What one message costs: in the fold, in the verifier, on the wire.
//!
//! Three shapes of log: one run that talks, a wide tree that talks all at once, a very wide one. What a message costs
//! may grow with the memory that the runs take, never with their number.
//!
//! Run it: `cargo bench --bench reducer`

use std::hint::black_box;
use std::sync::Arc;

use anabranch::id::{IdMint, RunId};
use anabranch::message::{
    Chunk, Extra, MessageBody, Nesting, Origin, ProcessingMessage, RunStarted, Scope, Timestamp,
};
use anabranch::tree::{RunTree, compact, verify};
use criterion::{BatchSize, Criterion, Throughput};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let shapes = [
        ("one run x 100000 deltas", shape(0, 100_000)),
        ("1000 runs x 100 deltas", shape(1_000, 100)),
        ("10000 runs x 10 deltas", shape(10_000, 10)),
    ];
    for (name, log) in &shapes {
        let mut group = criterion.benchmark_group(*name);
        group.throughput(Throughput::Elements(log.len() as u64));
        group.sample_size(20);
        group.bench_function("fold", |bencher| {
            bencher.iter_with_large_drop(|| RunTree::of(black_box(log)));
        });
        group.bench_function("verify", |bencher| bencher.iter(|| verify(black_box(log))));
        group.bench_function("compact", |bencher| bencher.iter_with_large_drop(|| compact(black_box(log))));
        // A log that was read has an envelope of its own for each message.
        let read: Vec<ProcessingMessage> =
            log.iter().filter_map(|message| ProcessingMessage::from_json(&message.to_json()).ok()).collect();
        group.bench_function("fold of a log that was read", |bencher| {
            bencher.iter_with_large_drop(|| RunTree::of(black_box(&read)));
        });
        group.finish();
    }
    wire(&mut criterion, &shapes[0].1);
    criterion.final_summary();
}

fn wire(criterion: &mut Criterion, log: &[ProcessingMessage]) {
    let Some(message) = log.last() else { return };
    let line = message.to_json();
    // The same message as another program might have written it: its line is kept.
    let foreign = line.replace(",\"done\":false", ", \"done\": false");
    let mut group = criterion.benchmark_group("wire");
    group.throughput(Throughput::Elements(1));
    group.bench_function("to_json", |bencher| bencher.iter(|| black_box(message).to_json()));
    group.bench_function("from_json", |bencher| {
        bencher.iter_batched(
            || (),
            |()| ProcessingMessage::from_json(black_box(&line)),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("from_json, foreign spelling", |bencher| {
        bencher.iter_batched(
            || (),
            |()| ProcessingMessage::from_json(black_box(&foreign)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// A root with `children` runs, all of which say `deltas` pieces of text in turn; without children the root talks.
fn shape(children: usize, deltas: usize) -> Vec<ProcessingMessage> {
    let mint = IdMint::seeded(1);
    let root = mint.mint(0);
    let origin = |run_id: RunId, parent_run_id: Option<RunId>| {
        let depth = u32::from(parent_run_id.is_some());
        let root_run_id = root.clone();
        Arc::new(Origin {
            root_run_id,
            run_id,
            parent_run_id,
            parent_tool_call_id: None,
            subtask_depth: depth,
        })
    };
    let root_origin = origin(root.clone(), None);
    let runs: Vec<Arc<Origin>> = (0..children).map(|_| origin(mint.mint(0), Some(root.clone()))).collect();
    let talkers = if runs.is_empty() { vec![Arc::clone(&root_origin)] } else { runs.clone() };
    let mut log = Vec::with_capacity(1 + runs.len() + talkers.len() * deltas);
    let mut push = |origin: &Arc<Origin>, run_seq: u64, body: MessageBody| {
        let time = Timestamp::from_micros(1_700_000_000_000_000 + log.len() as u64);
        let nesting = Nesting { origin: Arc::clone(origin), seq: log.len() as u64, run_seq, time };
        log.push(ProcessingMessage::new(body).stamped(nesting));
    };
    push(&root_origin, 0, started());
    runs.iter().for_each(|run| push(run, 0, started()));
    for delta in 0..deltas {
        talkers.iter().for_each(|run| push(run, 1 + delta as u64, Chunk::text(" token").into()));
    }
    log
}

fn started() -> MessageBody {
    RunStarted {
        agent: "agent".into(),
        title: "title".into(),
        task: "task".into(),
        scope: Scope::Foreground,
        producer: "script".into(),
        model: None,
        attempt: None,
        branch: None,
        timeout_ms: None,
        extra: Extra::default(),
    }
    .into()
}
