//! `traceless gateway`: the Redis protocol and S3 in front of an oblivious store.

mod log;

use crate::args::{GatewayArgs, GatewayDurability};
use crate::bench::choice;
use crate::failure::{BUSY, DEVICE, FINDING, Failure};
use crate::output::{complain, say};
use crate::signals;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use traceless_cloud::Error;
use traceless_cloud::front::{Front, Health, Metrics, Stop, Wall};
use traceless_cloud::gateway::Gateway;
use traceless_cloud::http::Http;
use traceless_cloud::local::Local;
use traceless_cloud::params::Params;
use traceless_cloud::resp::{self, Password};
use traceless_cloud::s3::Keys;
use traceless_cloud::store::Durability;
use traceless_cloud::tls::Tls;

/// Where the Redis protocol is served if nothing else is asked for.
const RESP_ADDRESS: &str = "127.0.0.1:6400";

pub fn run(args: &GatewayArgs) -> Result<(), Failure> {
    if !args.allow_simulated_tee {
        let what = "the enclave is simulated and protects nothing; --allow-simulated-tee goes on";
        return Err(Failure::usage(what));
    }
    log::start(args.log);
    // What can be wrong with options is found before anything is opened.
    let local = Local::new(&args.local, args.key_file.as_deref());
    let clients = Clients::read(args, &local)?;
    let stop = Arc::new(Stop::default());
    let asked = stop.clone();
    signals::on_stop(move || asked.ask())?;
    let metrics = Arc::new(Metrics::default());
    let mut http = Http::start(&stop).map_err(device)?;
    if let Some(address) = &args.metrics {
        let bound = http.metrics(address, &metrics).map_err(device)?;
        serving("metrics", bound);
    }
    let front = Front::new(open(args, &local)?, metrics.clone(), Arc::new(Wall));
    let front = Arc::new(front);
    let served = clients.serve(&front, &mut http, &stop)?;
    metrics.set_health(Health::Ready);
    stop.wait();
    tracing::info!("stopping");
    metrics.set_health(Health::Stopping);
    http.finish();
    if let Some(served) = served {
        served.join().map_err(|_| Failure::new(DEVICE, "serving RESP failed"))?.map_err(device)?;
    }
    front.run(Gateway::save).map_err(|e| failure(&e))?;
    tracing::info!("stopped");
    Ok(())
}

/// What is served to clients.
struct Clients<'a> {
    resp: Option<&'a str>,
    password: Option<Password>,
    s3: Option<(&'a str, Keys)>,
    tls: Option<Tls>,
}

impl<'a> Clients<'a> {
    fn read(args: &'a GatewayArgs, local: &Local) -> Result<Self, Failure> {
        let unfit = |e: Error| Failure::usage(e);
        let tls = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
        let tls = tls.map(|(chain, key)| Tls::read(chain, key)).transpose();
        let resp = args.resp.as_deref();
        let resp = resp.or_else(|| args.s3.is_none().then_some(RESP_ADDRESS));
        let password = args.resp_password_file.as_deref().map(Password::read).transpose();
        let s3 = match &args.s3 {
            None => None,
            Some(address) => {
                let path = if let Some(path) = &args.s3_keys {
                    path.clone()
                } else {
                    let path = local.s3_keys().map_err(|e| failure(&e))?;
                    let what = "the access keys of S3 lie beside the data (--s3-keys)";
                    complain(&format!("{what}: {}", path.display()));
                    path
                };
                Some((&address[..], Keys::read(&path).map_err(unfit)?))
            }
        };
        Ok(Self { resp, password: password.map_err(unfit)?, s3, tls: tls.map_err(Failure::usage)? })
    }

    /// Serves all of it, the Redis protocol in a thread that is returned.
    fn serve(
        self,
        front: &Arc<Front>,
        http: &mut Http,
        stop: &Arc<Stop>,
    ) -> Result<Option<JoinHandle<std::io::Result<()>>>, Failure> {
        let Self { resp, password, s3, tls } = self;
        if let Some((address, keys)) = s3 {
            serving("S3", http.s3(address, front, keys, tls.as_ref()).map_err(device)?);
        }
        let Some(address) = resp else { return Ok(None) };
        let listener = TcpListener::bind(address).map_err(device)?;
        let bound = listener.local_addr().map_err(device)?;
        let (front, stop) = (front.clone(), stop.clone());
        let options = resp::Options { password, tls };
        let thread = std::thread::spawn(move || resp::serve(&listener, &front, options, &stop));
        serving("RESP", bound);
        Ok(Some(thread))
    }
}

fn serving(what: &str, address: SocketAddr) {
    say(&format!("{what} at {address}"));
    tracing::info!(what, %address, "serving");
}

fn open(args: &GatewayArgs, local: &Local) -> Result<Gateway, Failure> {
    let block_len = usize::try_from(args.block_len).map_err(Failure::usage)?;
    let params = Params::new(args.blocks, block_len, args.lambda).map_err(Failure::usage)?;
    complain("the enclave is simulated: it hides nothing from whoever controls this machine");
    if local.key_is_beside() {
        complain("the key lies beside the data: whoever takes the folder can read it (--key-file)");
    }
    let durability = match args.durability {
        GatewayDurability::Process => Durability::Process,
        GatewayDurability::Power => Durability::Power,
    };
    local.open(params, choice(args.kernel), durability).map_err(|e| failure(&e))
}

fn device(error: std::io::Error) -> Failure {
    Failure::new(DEVICE, error)
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Parameters(_) | Error::OutOfRange { .. } => Failure::usage(error),
        Error::RolledBack { .. } | Error::Tampered { .. } | Error::Forged { .. } => {
            Failure::new(FINDING, error)
        }
        Error::InUse(_) => Failure::new(BUSY, error),
        _ => Failure::new(DEVICE, error),
    }
}
