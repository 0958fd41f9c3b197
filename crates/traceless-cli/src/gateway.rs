//! `traceless gateway`: the Redis protocol and S3 in front of an oblivious store.

mod backup;
mod scrub;
mod state;
mod tree;

use crate::args::{GatewayArgs, GatewayCommand, Rate};
use crate::cloud::{attest_program, failure, refused};
use crate::dashboard::Dashboard;
use crate::failure::{DEVICE, Failure};
use crate::log;
use crate::output::{print_error, print_line};
use crate::signals;
use crate::trace::Trace;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use traceless_cloud::gateway::{AccessObserver, Gateway, QUERIES_PER_SECOND_MAX};
use traceless_cloud::http::{Http, metrics_clients};
use traceless_cloud::local_deployment::s3_keys;
use traceless_cloud::observed_host::QueriedLeaves;
use traceless_cloud::resp::{self, Password, RespUsers};
use traceless_cloud::s3::AccessKeys;
use traceless_cloud::shared::{
    Health, Kind, Metrics, MoveThread, RateThread, SaveThread, ScrubThread, SharedGateway, Stop,
    Wall,
};
use traceless_cloud::tls::Tls;
use traceless_core::store::PlaceAudit;
use traceless_core::trace::Op;
use traceless_dashboard::{Monitor, Reading};
use traceless_sys::listen;

/// The default address of the Redis protocol, if S3 is not served either.
const RESP_ADDRESS: &str = "127.0.0.1:6400";

pub fn run(args: &GatewayArgs) -> Result<(), Failure> {
    match &args.command {
        Some(GatewayCommand::Check(args)) => state::check(args),
        Some(GatewayCommand::Repair(args)) => state::repair(args),
        Some(GatewayCommand::Scrub(args)) => scrub::scrub(args),
        Some(GatewayCommand::Backup(args)) => backup::back_up(args),
        Some(GatewayCommand::Restore(args)) => backup::restore(args),
        None => serve(args),
    }
}

fn serve(args: &GatewayArgs) -> Result<(), Failure> {
    log::start(args.log);
    // Wrong options are found before anything is opened.
    let clients = Clients::read(args)?;
    check_rate(args)?;
    let stop = Arc::new(Stop::default());
    let stop_handle = stop.clone();
    signals::on_stop(move || stop_handle.request())?;
    let metrics = Arc::new(Metrics::default());
    let mut http = Http::start(&stop).map_err(device)?;
    if let Some(address) = &args.metrics {
        let bound = http.metrics(address, &metrics, clients.metrics_password.clone());
        serving("metrics", bound.map_err(device)?);
    }
    let trace = Trace::open(&args.trace)?;
    let dashboard = Dashboard::start(&args.dashboard, "gateway")?;
    let opened = tree::open(&args.tree, dashboard.witness(&trace), Some(&stop))?;
    let Some(mut gateway) = opened else { return Ok(()) };
    if let Some(observer) = access_observer(&trace, &dashboard) {
        gateway.set_observer(observer);
    }
    if let Some(monitor) = dashboard.monitor() {
        show(&gateway, &metrics, monitor);
    }
    if let Some(len) = args.copies {
        gateway.keep_copies(usize::try_from(len).map_err(Failure::usage)?);
    }
    let front = Arc::new(SharedGateway::new(gateway, metrics.clone(), Arc::new(Wall)));
    let rate_thread = match args.rate {
        Rate::Demand => None,
        Rate::Fixed(queries) => {
            let started = RateThread::start(&front, queries, args.together);
            Some(started.map_err(|e| failure(&e))?)
        }
    };
    let (move_thread, save_thread) = (MoveThread::start(&front), SaveThread::start(&front));
    let scrub_thread = args.scrub.map(|speed| ScrubThread::start(&front, speed));
    let resp_thread = clients.serve(&front, &mut http, &stop)?;
    metrics.set_health(Health::Ready);
    stop.wait();
    tracing::info!("stopping");
    metrics.set_health(Health::Stopping);
    front.wait_no_more();
    http.finish();
    if let Some(resp_thread) = resp_thread {
        resp_thread
            .join()
            .map_err(|_| Failure::new(DEVICE, "serving RESP failed"))?
            .map_err(device)?;
    }
    // Answers may have waited for the ticks until now.
    drop((rate_thread, move_thread, save_thread, scrub_thread));
    front.close().map_err(|e| failure(&e))?;
    tracing::info!("stopped");
    trace.finish()
}

/// Refuses a rate that is impossible, and what does not go with one.
fn check_rate(args: &GatewayArgs) -> Result<(), Failure> {
    if let Rate::Fixed(ticks) = args.rate
        && ticks > QUERIES_PER_SECOND_MAX
    {
        return Err(Failure::usage(format!("{QUERIES_PER_SECOND_MAX} slots a second is the most")));
    }
    if args.tree.drain > 0 && args.rate != Rate::Demand {
        return Err(Failure::usage("--drain: at a constant rate no tree moves to another host"));
    }
    if args.together != 1 && args.rate == Rate::Demand {
        return Err(Failure::usage("--together is for a constant rate: add --rate fixed=N/s"));
    }
    if args.scrub.is_some() && args.rate != Rate::Demand {
        let message = "--scrub would send messages beside the ticks of --rate: stop the gateway, \
                       and use `gateway scrub`";
        return Err(Failure::usage(message));
    }
    Ok(())
}

/// TLS for clients, with a certificate from files or one that is made now.
fn tls(args: &GatewayArgs) -> Result<Option<Tls>, Failure> {
    if let (Some(chain), Some(key)) = (&args.tls_cert, &args.tls_key) {
        return Tls::read(chain, key).map(Some).map_err(Failure::usage);
    }
    if args.certify.is_empty() {
        return Ok(None);
    }
    let program = attest_program(&args.tree.attestation);
    let tls = Tls::with_evidence(&program, &args.certify, args.evidence.as_deref());
    tls.map(Some).map_err(device)
}

/// What the gateway serves to clients.
struct Clients<'a> {
    resp: Option<&'a str>,
    users: RespUsers,
    s3: Option<(&'a str, AccessKeys)>,
    domains: &'a [String],
    metrics_password: Option<Password>,
    tls: Option<Tls>,
}

impl<'a> Clients<'a> {
    fn read(args: &'a GatewayArgs) -> Result<Self, Failure> {
        let tls = tls(args);
        let resp = args.resp.as_deref();
        let resp = resp.or_else(|| args.s3.is_none().then_some(RESP_ADDRESS));
        let read = |path: &Path| Password::read(path).map_err(|e| unfit(path, e));
        let users = if let Some(path) = &args.resp_users {
            RespUsers::read(path).map_err(|e| unfit(path, e))?
        } else {
            RespUsers::of_default(args.resp_password_file.as_deref().map(read).transpose()?)
        };
        let metrics_password = args.metrics_password_file.as_deref().map(read).transpose()?;
        check(resp, resp::clients(&users))?;
        check(args.s3.as_deref(), listen::Clients::Authenticated)?;
        check(args.metrics.as_deref(), metrics_clients(metrics_password.is_some()))?;
        let tls = tls?;
        if tls.is_none() {
            let mut all = [resp, args.s3.as_deref()].into_iter().flatten();
            all.try_for_each(|address| warn_in_the_clear(address, "--tls-cert"))?;
        }
        // TLS is for the clients of S3 and of the Redis protocol only.
        if let Some(address) = &args.metrics {
            warn_in_the_clear(address, "metrics have no TLS")?;
        }
        let s3 = match &args.s3 {
            None => None,
            Some(address) => {
                let path = if let Some(path) = &args.s3_keys {
                    path.clone()
                } else {
                    let path = s3_keys(&tree::home(&args.tree)?).map_err(|e| failure(&e))?;
                    let what = "the access keys of S3 lie beside the data (--s3-keys)";
                    print_error(&format!("{what}: {}", path.display()));
                    path
                };
                Some((&address[..], AccessKeys::read(&path).map_err(|e| unfit(&path, e))?))
            }
        };
        Ok(Self { resp, users, s3, domains: &args.s3_domain, metrics_password, tls })
    }

    /// Serves S3 and the Redis protocol; returns the thread of the Redis protocol.
    fn serve(
        self,
        front: &Arc<SharedGateway>,
        http: &mut Http,
        stop: &Arc<Stop>,
    ) -> Result<Option<JoinHandle<std::io::Result<()>>>, Failure> {
        let Self { resp, users, s3, domains, tls, .. } = self;
        if let Some((address, keys)) = s3 {
            let bound = http.s3(address, front, keys, domains.to_vec(), tls.as_ref());
            serving("S3", bound.map_err(device)?);
        }
        let Some(address) = resp else { return Ok(None) };
        let listener = listen::bind(address, resp::clients(&users)).map_err(refused)?;
        let bound = listener.local_addr().map_err(device)?;
        let (front, stop) = (front.clone(), stop.clone());
        let options = resp::Options { users, tls, ..resp::Options::default() };
        let thread = std::thread::spawn(move || resp::serve(&listener, &front, options, &stop));
        serving("RESP", bound);
        Ok(Some(thread))
    }
}

/// The failure for a file of passwords or keys that cannot be used.
fn unfit(path: &Path, error: impl Display) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}

/// Refuses an address that is only allowed with authentication of clients.
fn check(address: Option<&str>, clients: listen::Clients) -> Result<(), Failure> {
    address.map_or(Ok(()), |address| listen::resolve(address, clients).map(drop).map_err(refused))
}

fn warn_in_the_clear(address: &str, hint: &str) -> Result<(), Failure> {
    let all = listen::resolve(address, listen::Clients::Authenticated).map_err(refused)?;
    if !all.into_iter().all(listen::is_loopback) {
        let what = "what clients send, and what they get, crosses the network in the clear";
        print_error(&format!("{what}: {address} ({hint})"));
    }
    Ok(())
}

fn serving(what: &str, address: SocketAddr) {
    print_line(&format!("{what} at {address}"));
    tracing::info!(what, %address, "serving");
}

/// Shows the gateway on its dashboard: accesses to blocks as the user's requests, and the latencies
/// of the clients' requests.
fn show(gateway: &Gateway, metrics: &Arc<Metrics>, monitor: &Arc<Monitor>) {
    let params = gateway.params();
    monitor.adversary().set_space(params.geometry.tree_len());
    let leaves = Box::new(QueriedLeaves(params.geometry));
    monitor.start_audit(Box::new(PlaceAudit::default().with_draws(leaves)));
    monitor.user().set_space(params.blocks * params.geometry.block_len as u64);
    let observer = monitor.clone();
    metrics.set_latency_observer(move |kind, ns| match kind {
        Kind::Read => observer.record_latency(Op::Read, ns),
        Kind::Write => observer.record_latency(Op::Write, ns),
        // These send no query of their own.
        Kind::Remove | Kind::State => {}
    });
    let own = metrics.clone();
    monitor.set_more_metrics(move || own.text());
    let own = metrics.clone();
    // The metrics above have them, too.
    let reading = |(help, value)| Reading { metric: None, help, value: value as f64 };
    monitor.set_readings(move || own.readings().map(reading).into());
}

/// A function that records accesses to blocks for a trace with secrets, and for a dashboard.
fn access_observer(trace: &Trace, dashboard: &Dashboard) -> Option<Box<AccessObserver>> {
    let recorder = trace.request_recorder();
    let Some(monitor) = dashboard.monitor().cloned() else {
        return recorder.map(|recorder| Box::new(recorder) as _);
    };
    Some(Box::new(move |op, at, len| {
        if let Some(recorder) = &recorder {
            recorder(op, at, len);
        }
        monitor.record_request(op, at, len);
    }))
}

fn device(error: std::io::Error) -> Failure {
    Failure::new(DEVICE, error)
}
