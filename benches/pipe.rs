//! What the pipe itself costs: instant producers, no model, CPU time of the process.
//!
//! `cargo bench --bench pipe` measures every workload with criterion; `cargo bench --bench pipe -- report` prints the
//! figures of BENCHMARKS.md instead: medians of rounds in which the workloads take turns, so that what disturbs the machine
//! disturbs all of them alike. `-- report W3` prints those with `W3` in their names.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench that cannot run says why and ends; its report goes to standard output"
)]

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, SamplingMode};

#[path = "pipe/workloads.rs"]
mod workloads;

use workloads::{Figure, Unit};

/// The CPU time of this process, in nanoseconds, so that other programs on the machine count as little as possible.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = f64;

    fn start(&self) -> Duration {
        cpu_time()
    }

    fn end(&self, start: Duration) -> f64 {
        (cpu_time() - start).as_secs_f64() * 1e9
    }

    fn add(&self, one: &f64, two: &f64) -> f64 {
        one + two
    }

    fn zero(&self) -> f64 {
        0.0
    }

    fn to_f64(&self, value: &f64) -> f64 {
        *value
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        static NANOSECONDS: WallTime = WallTime;
        NANOSECONDS.formatter()
    }
}

#[cfg(unix)]
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Where the system has no such clock: wall time.
#[cfg(not(unix))]
fn cpu_time() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut args = args.iter().filter(|arg| *arg != "--bench");
    if args.next().is_some_and(|arg| arg == "report") {
        return report(args.next().map_or("", String::as_str));
    }
    let mut criterion = Criterion::default().with_measurement(CpuTime).configure_from_args();
    let mut group = criterion.benchmark_group("pipe");
    group.sampling_mode(SamplingMode::Flat).sample_size(20);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    for figure in workloads::ALL {
        // A run of a workload gives the cost of one unit: of a message, of a child, of a cancel.
        group.bench_function(figure.name, |bencher| {
            bencher.iter_custom(|runs| (0..runs).map(|_| black_box((figure.run)())).sum());
        });
    }
    group.finish();
    criterion.final_summary();
}

/// Rounds of the report: odd, so that the median is a round that was measured.
const ROUNDS: usize = 7;

fn report(word: &str) {
    if "memory".contains(word) {
        let bytes = workloads::bytes_per_child(20_000);
        println!("{:60} {bytes:.0} bytes", "memory per waiting child with a bare producer");
    }
    let figures: Vec<_> = workloads::ALL.iter().filter(|figure| figure.name.contains(word)).collect();
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); figures.len()];
    for round in 0..=ROUNDS {
        for (figure, values) in figures.iter().zip(&mut rounds) {
            let value = (figure.run)();
            // The first round warms up.
            if round > 0 {
                values.push(value);
            }
        }
    }
    for (figure, values) in figures.iter().zip(&rounds) {
        println!("{:60} {}", figure.name, in_unit(figure, median(values.clone())));
    }
    for (name, above, below) in workloads::RATIOS {
        let rounds_of = |name: &str| {
            let at = figures.iter().position(|figure| figure.name == name);
            at.and_then(|at| rounds.get(at))
        };
        if let (Some(above), Some(below)) = (rounds_of(above), rounds_of(below)) {
            // Of pairs that were measured next to each other, not of two medians.
            let pairs = above.iter().zip(below).map(|(above, below)| above / below).collect();
            println!("{name:60} {:.2}", median(pairs));
        }
    }
    if "burst".contains(word) {
        println!("{:60} {}", "burst of 100,000 cancels beyond the retained window", workloads::burst());
    }
}

fn in_unit(figure: &Figure, value: f64) -> String {
    match figure.unit {
        Unit::Message | Unit::Child => format!("{:.3} µs", value / 1e3),
        Unit::Cancel => format!("{:.3} ms", value / 1e6),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
