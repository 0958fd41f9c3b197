//! `traceless plan`: what a store needs for a load.

use crate::args::{LAMBDA, LEASE, PlanCloudArgs, PlanCommand, PlannedEngine};
use crate::failure::Failure;
use crate::output::{print_json, print_line};
use serde_json::{Value, json};
use std::time::Duration;
use traceless_advise::{about, size_text};
use traceless_cloud::capacity::{CapacityPlan, Demand, EngineKind, PlanConditions, Prices, plan};
use traceless_cloud::params::ARITY;

pub fn run(command: &PlanCommand) -> Result<(), Failure> {
    match command {
        PlanCommand::Cloud(args) => plan_cloud(args),
    }
}

fn plan_cloud(args: &PlanCloudArgs) -> Result<(), Failure> {
    let demand = Demand {
        data: args.data,
        value_len: args.value,
        requests_per_second: args.requests,
        skew: args.skew,
        read_share: args.reads,
    };
    let conditions = conditions(args)?;
    let plans = plan(&demand, &conditions, &prices(args, conditions.engine)?);
    let plans = plans.map_err(Failure::usage)?;
    if args.json {
        let all: Vec<Value> = plans.iter().map(|plan| to_json(plan, args)).collect();
        return print_json(&json!({ "schema": "traceless.plan.cloud.v1", "plans": all }));
    }
    print(&plans, args);
    Ok(())
}

fn conditions(args: &PlanCloudArgs) -> Result<PlanConditions, Failure> {
    let (engine, usual) = match args.engine {
        PlannedEngine::File => (EngineKind::Files, 1.0),
        PlannedEngine::Redis => (EngineKind::Redis, 1.0),
        PlannedEngine::S3 => (EngineKind::S3, 20.0),
        PlannedEngine::Postgres => (EngineKind::Postgres, 1.0),
    };
    let seconds = args.latency.unwrap_or(usual) / 1e3;
    let latency = Duration::try_from_secs_f64(seconds)
        .map_err(|e| Failure::usage(format!("--latency: {e}")))?;
    Ok(PlanConditions {
        engine,
        latency,
        cache: args.cache,
        lambda: args.lambda,
        host_speed: args.host_speed as f64,
        copies: args.copies,
        standbys: args.standbys,
        lease: Duration::from_secs(args.lease.into()),
    })
}

fn prices(args: &PlanCloudArgs, engine: EngineKind) -> Result<Prices, Failure> {
    let given = &args.prices;
    let mut prices = Prices {
        million_reads: given.read,
        million_writes: given.write,
        machine: given.machine,
        transferred_gb: given.transfer,
        ..Prices::default()
    };
    if let Some(price) = given.storage {
        *match engine {
            EngineKind::Files | EngineKind::Postgres => &mut prices.disk_gb,
            EngineKind::Redis => &mut prices.memory_gb,
            EngineKind::S3 => &mut prices.object_gb,
        } = price;
    }
    let all = [
        prices.million_reads,
        prices.million_writes,
        prices.object_gb,
        prices.disk_gb,
        prices.memory_gb,
        prices.machine,
        prices.transferred_gb,
    ];
    if all.iter().any(|price| !price.is_finite() || *price < 0.0) {
        return Err(Failure::usage("a price is a number of dollars, 0 or more"));
    }
    Ok(prices)
}

/// The options of `traceless gateway`.
fn options(plan: &CapacityPlan, args: &PlanCloudArgs) -> String {
    let mut words = vec![format!(
        "--blocks {} --block-len {} --rate fixed={}/s",
        plan.params.blocks,
        size_text(plan.params.geometry.block_len as u64),
        plan.rate
    )];
    if plan.together > 1 {
        words.push(format!("--together {}", plan.together));
    }
    if plan.params.geometry.arity != ARITY {
        words.push(format!("--arity {}", plan.params.geometry.arity));
    }
    if args.cache != PlanConditions::default().cache {
        words.push(format!("--cache {}", size_text(args.cache)));
    }
    if args.lambda != LAMBDA {
        words.push(format!("--lambda {}", args.lambda));
    }
    if args.copies > 0 {
        words.push(format!("--copies {}", size_text(args.copies)));
    }
    if args.standbys > 0 && args.lease != LEASE {
        words.push(format!("--lease {}", args.lease));
    }
    words.join(" ")
}

fn to_json(plan: &CapacityPlan, args: &PlanCloudArgs) -> Value {
    json!({
        "options": options(plan, args),
        "rate": plan.rate,
        "together": plan.together,
        "blocks": plan.params.blocks,
        "block_len": plan.params.geometry.block_len,
        "arity": plan.params.geometry.arity,
        "lambda": plan.params.lambda,
        "hosts": plan.hosts,
        "layers": plan.params.geometry.layers,
        "layers_cached": plan.layers_cached,
        "engine_reads_per_second": plan.requests.reads,
        "engine_writes_per_second": plan.requests.writes,
        "state_reads_per_second": plan.state_requests.reads,
        "state_writes_per_second": plan.state_requests.writes,
        "copy_hits": plan.copy_hits,
        "stored_bytes": plan.stored,
        "message_bytes_per_second": plan.messages,
        "gateway_memory_bytes": plan.gateway_memory,
        "mean_wait_ms": plan.mean_wait.as_secs_f64() * 1e3,
        "dollars_per_month": {
            "storage": plan.money.storage,
            "requests": plan.money.requests,
            "machines": plan.money.machines,
            "transfers": plan.money.transfers,
            "total": plan.money.total(),
        },
    })
}

fn print(plans: &[CapacityPlan], args: &PlanCloudArgs) {
    let (best, rest) = plans.split_first().expect("there is a plan, or an error");
    let money = &best.money;
    print_line(&format!("traceless gateway {}", options(best, args)));
    print_line(&format!(
        "  {} queries a second, {} at a time; a read waits {:.1} ms in the mean",
        best.rate,
        best.together,
        best.mean_wait.as_secs_f64() * 1e3
    ));
    print_line(&format!(
        "  {} host{}; the engine stores {}, and gets {:.1} requests a second that read and {:.1} \
         that write",
        best.hosts,
        if best.hosts == 1 { "" } else { "s" },
        about(best.stored as f64),
        best.requests.reads,
        best.requests.writes
    ));
    if args.standbys > 0 {
        print_line(&format!(
            "  {} standing by; for the state the engine gets {:.1} requests a second that read and \
             {:.1} that write",
            args.standbys, best.state_requests.reads, best.state_requests.writes
        ));
    }
    if args.copies > 0 {
        let hits = 100.0 * best.copy_hits;
        print_line(&format!("  {hits:.0} % of the reads find a copy, and send no query"));
    }
    print_line(&format!(
        "  messages {} a second; memory of the gateway {}",
        about(best.messages),
        about(best.gateway_memory as f64)
    ));
    print_line(&format!(
        "  {:.2} dollars a month: storage {:.2}, requests {:.2}, machines {:.2}, transfers {:.2}",
        money.total(),
        money.storage,
        money.requests,
        money.machines,
        money.transfers
    ));
    if !rest.is_empty() {
        print_line("instead, with dollars a month:");
    }
    for plan in rest {
        print_line(&format!("  {:10.2}  {}", plan.money.total(), options(plan, args)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Product};
    use clap::Parser as _;

    /// The definitions of the command line cannot name the library's values.
    #[test]
    fn the_library_has_the_same_defaults() {
        let words = ["traceless", "plan", "cloud", "--data", "1G", "--requests", "1"];
        let Product::Plan { command } = Cli::parse_from(words).product else { panic!() };
        let PlanCommand::Cloud(args) = command;
        assert_eq!(conditions(&args).unwrap(), PlanConditions::default());
        assert_eq!(prices(&args, EngineKind::Files).unwrap(), Prices::default());
    }
}
