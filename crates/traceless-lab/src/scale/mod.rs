//! `traceless-lab scale`: how fast a cloud store of any size is, by a model.
//!
//! `model` has a gateway, its clients and hosts as events (`event_queue`) and jobs of processors
//! (`processors`), over trees of any size (`tree_shape`). `calibration` measures what each part
//! takes here. `check` compares the model with `measured_system`: real hosts behind proxies.

mod calibration;
mod check;
mod event_queue;
mod measured_system;
mod model;
mod processors;
mod tree_shape;

pub use check::row;

use crate::args::ScaleArgs;
use crate::report::{Hardware, failed};
use model::{Machines, ModelCosts, Prediction, Scenario, predict};
use serde::Serialize;
use traceless_cli::failure::{DEVICE, Failure};
use traceless_cli::output::{print_error, print_json, print_line};
use traceless_cloud::params::Params;
use tree_shape::TreeShape;

const LAMBDA: u32 = 32;
/// Simulated requests: of each client, and in all.
const REQUESTS_PER_CLIENT: usize = 40;
const REQUESTS_MIN: usize = 60_000;

#[derive(Serialize)]
struct ScaleReport {
    schema: &'static str,
    machine: Hardware,
    calibration: ModelCosts,
    predictions: Vec<ScalePrediction>,
}

#[derive(Serialize)]
struct ScalePrediction {
    blocks: u64,
    hosts: usize,
    round_trip_ms: f64,
    clients: usize,
    layers: usize,
    #[serde(flatten)]
    prediction: Prediction,
}

pub fn run(args: &ScaleArgs) -> Result<(), Failure> {
    if args.check {
        return check::run(args.json);
    }
    let costs = match &args.calibration {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|e| Failure::new(DEVICE, format!("{}: {e}", path.display())))?;
            serde_json::from_str(&text).map_err(|e| {
                Failure::usage(format!("{}: not a calibration: {e}", path.display()))
            })?
        }
        None => calibrate()?,
    };
    if let Some(path) = &args.save_calibration {
        let text = serde_json::to_string_pretty(&costs).map_err(failed)?;
        std::fs::write(path, text + "\n")
            .map_err(|e| Failure::new(DEVICE, format!("{}: {e}", path.display())))?;
    }
    let report = ScaleReport {
        schema: "traceless.scale.v1",
        machine: Hardware::here(),
        calibration: costs,
        predictions: predictions(args, &costs.without_relay())?,
    };
    if args.json {
        return print_json(&report);
    }
    report.print();
    Ok(())
}

fn calibrate() -> Result<ModelCosts, Failure> {
    print_error("measuring what each part takes here");
    calibration::Calibrator::start(check::params()?, check::NAMES)?.costs()
}

fn predictions(args: &ScaleArgs, costs: &ModelCosts) -> Result<Vec<ScalePrediction>, Failure> {
    let block_len = usize::try_from(args.block_len).map_err(Failure::usage)?;
    let &[gateway, host] = &args.cores[..] else {
        return Err(Failure::usage("--cores has two numbers: of the gateway, and of a host"));
    };
    let machines = Machines::Apart { gateway: f64::from(gateway), host: f64::from(host) };
    let mut all = Vec::new();
    for &blocks in &args.blocks {
        for &hosts in &args.hosts {
            let shape = TreeShape::of(blocks, block_len, LAMBDA, hosts).map_err(Failure::usage)?;
            for &round_trip_ms in &args.round_trip {
                for &clients in &args.clients {
                    let scenario = Scenario {
                        shape,
                        machines,
                        hosts,
                        round_trips: vec![round_trip_ms / 1e3],
                        bandwidth: args.bandwidth as f64,
                        clients,
                        hits: shape.hits(blocks),
                        requests: REQUESTS_MIN.max(REQUESTS_PER_CLIENT * clients),
                    };
                    let (prediction, layers) = (predict(costs, &scenario), shape.layers);
                    all.push(ScalePrediction {
                        blocks,
                        hosts,
                        round_trip_ms,
                        clients,
                        layers,
                        prediction,
                    });
                }
            }
        }
    }
    Ok(all)
}

impl ScaleReport {
    fn print(&self) {
        print_line(
            "     blocks  hosts  round trip  clients    requests/s    mean ms     p99 ms   \
             queries a batch   lock   gateway   host",
        );
        for one in &self.predictions {
            let ScalePrediction { blocks, hosts, round_trip_ms, clients, prediction: p, .. } = one;
            print_line(&format!(
                "{:>11.0e} {hosts:>6} {round_trip_ms:>8} ms {clients:>8} {:>13.0} {:>10.2} \
                 {:>10.2} {:>17.1} {:>5.0}% {:>8.0}% {:>5.0}%",
                *blocks as f64,
                p.requests_per_second,
                p.mean_ms,
                p.p99_ms,
                p.batch,
                100.0 * p.locked,
                100.0 * p.gateway_busy,
                100.0 * p.host_busy
            ));
        }
    }
}

/// The parameters of a tree for values of a block each.
fn params_of(blocks: u64, block_len: usize) -> Result<Params, Failure> {
    Params::new(blocks, block_len, LAMBDA).map_err(failed)
}
