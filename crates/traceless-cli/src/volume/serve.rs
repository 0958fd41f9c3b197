//! `traceless volume serve`

use super::deniable_session::check_usage;
use super::{key, rate, recorded_device, start_dashboard};
use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::output::Meter;
use crate::signals;
use crate::trace::Trace;
use listenfd::ListenFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use traceless_core::store::Caching;
use traceless_volume::device::Device;
use traceless_volume::nbd::{Endpoint, Options, Server, TlsFiles};
use traceless_volume::volume::{LockedImage, OpenOptions};

pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    check_usage(&args.deniable)?;
    let mut inherited = inherited(args)?;
    traceless_sys::lock_all_memory();
    let key = key::existing(&args.image.key)?;
    let trace = Trace::open(&args.open.trace)?;
    let dashboard = start_dashboard(&args.open, &args.image.image)?;
    let options = OpenOptions {
        read_only: args.open.read_only,
        exclusive: false,
        anchor: args.open.anchor.anchor.clone(),
        caching: if args.direct { Caching::Direct } else { Caching::Buffered },
        witness: dashboard.witness(&trace),
        // The dashboard has a clock of its own.
        event_times: trace.witness().is_some(),
        discard: args.open.discard,
    };
    let image = LockedImage::new(&args.image.image, &key, options)?;
    drop(key);
    if let Some(monitor) = dashboard.monitor() {
        monitor.adversary().set_space(image.image_len());
    }
    // An address that cannot be had must not change the image, so the server binds before the image
    // is opened. Clients that connect meanwhile wait.
    let bound = bind(args, &mut inherited)?;
    let mut meter = Meter::new("opening", args.progress.progress);
    let volume = image.open(&mut |done, all| meter.update(done, all));
    meter.finish();
    let volume = Arc::new(volume?);
    let outcome = rate::serve_at(args.open.rate, &volume, |device| {
        serve(bound, &recorded_device::record_requests(&volume, device, &trace, &dashboard))
    });
    // The volume is closed even after an error: acknowledged writes are kept, and the next opening
    // is quick.
    let closed = volume.close().map_err(Failure::from);
    let traced = trace.finish();
    outcome.and(closed).and(traced)
}

/// Sockets that the parent process listens on already. Fails if there is nowhere to listen.
pub fn inherited(args: &ServeArgs) -> Result<ListenFd, Failure> {
    let inherited = ListenFd::from_env();
    if args.socket.is_none() && args.tcp.is_none() && inherited.len() == 0 {
        return Err(Failure::usage("where to? give --socket PATH or --tcp ADDRESS:PORT"));
    }
    Ok(inherited)
}

/// Listens where the arguments say. An address that cannot be had must not change the image.
pub fn bind(args: &ServeArgs, inherited: &mut ListenFd) -> Result<Server, Failure> {
    let tls =
        args.tls_certificate.as_ref().zip(args.tls_key.as_ref()).map(|(chain, key)| TlsFiles {
            certificates: chain.clone(),
            key: key.clone(),
            client_ca: args.tls_client_ca.clone(),
        });
    let options = Options { tls, ..Options::default() };
    Ok(Server::bind(endpoint(args, inherited)?, &options)?)
}

fn serve(server: Server, device: &Arc<dyn Device>) -> Result<(), Failure> {
    let handle = server.handle();
    signals::on_stop(move || handle.shutdown())?;
    Ok(server.run(device)?)
}

fn endpoint(args: &ServeArgs, inherited: &mut ListenFd) -> Result<Endpoint, Failure> {
    if let Some(path) = &args.socket {
        return Ok(Endpoint::Unix(path.clone()));
    }
    if let Some(address) = args.tcp {
        return Ok(Endpoint::Tcp(address));
    }
    let mut sockets: Vec<OwnedFd> = vec![];
    for i in 0..inherited.len() {
        let unix = inherited.take_unix_listener(i).ok().flatten().map(OwnedFd::from);
        let socket = match unix {
            Some(socket) => Some(socket),
            None => inherited.take_tcp_listener(i).map_err(Failure::usage)?.map(OwnedFd::from),
        };
        sockets.extend(socket);
    }
    Ok(Endpoint::Inherited(sockets))
}
