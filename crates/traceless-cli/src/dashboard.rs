//! `--dashboard ADDR`: a live page of a product.

use crate::args::DashboardArgs;
use crate::failure::{DEVICE, Failure};
use crate::output::print_error;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
#[cfg(any(feature = "volume", feature = "cloud", feature = "sim"))]
use traceless_core::activity::Activity;
use traceless_core::activity::SharedActivity;
use traceless_core::rng::System;
#[cfg(any(feature = "volume", feature = "cloud"))]
use traceless_core::trace::{Witness, WitnessPair};
use traceless_dashboard::{Monitor, Server, clients, random_token};
use traceless_sys::listen;
use traceless_sys::password::Password;
use zeroize::Zeroizing;

/// The live page, if the option was given. It is served until this is dropped.
pub struct Dashboard(Option<(Arc<Monitor>, Server)>);

impl Dashboard {
    /// Serves the page of a product, which `title` names, and prints its address.
    #[cfg(any(feature = "volume", feature = "cloud", feature = "sim"))]
    pub fn start(args: &DashboardArgs, title: &str) -> Result<Self, Failure> {
        if args.dashboard.is_none() {
            return Ok(Self(None));
        }
        Self::start_over(args, title, Arc::new(Box::<Activity>::default()))
    }

    /// The same for a product that may also record its activity by itself.
    pub fn start_over(
        args: &DashboardArgs,
        title: &str,
        activity: SharedActivity,
    ) -> Result<Self, Failure> {
        let Some(name) = &args.dashboard else { return Ok(Self(None)) };
        let file = args.dashboard_password_file.as_deref();
        let (password, fragment) = match file {
            None => {
                let token = random_token(&mut System);
                let password = Password::new(token.as_bytes()).expect("a token is long enough");
                (password, format!("#token={token}"))
            }
            Some(path) => (read_password(path)?, String::new()),
        };
        let monitor = Arc::new(Monitor::over(title, activity));
        let server = Server::start_for(name, clients(file.is_some()), monitor.clone(), password);
        let server = server.map_err(|e| match e.kind() {
            std::io::ErrorKind::PermissionDenied => Failure::usage(e),
            _ => Failure::new(DEVICE, e),
        })?;
        let address = server.address();
        print_error(&format!("the dashboard is at http://{address}/{fragment}"));
        if !listen::is_loopback(address) {
            print_error("what the dashboard shows crosses the network in the clear");
        }
        Ok(Self(Some((monitor, server))))
    }

    pub fn monitor(&self) -> Option<&Arc<Monitor>> {
        self.0.as_ref().map(|(monitor, _)| monitor)
    }
}

#[cfg(any(feature = "volume", feature = "cloud"))]
impl Dashboard {
    /// A witness for the page and for `trace`.
    pub fn witness(&self, trace: &crate::trace::Trace) -> Option<Arc<dyn Witness>> {
        let monitor = self.monitor().map(|monitor| monitor.clone() as Arc<dyn Witness>);
        WitnessPair::of(trace.witness(), monitor)
    }
}

/// The password in a file. The page can only send text.
fn read_password(path: &Path) -> Result<Password, Failure> {
    let unfit = |e: &dyn Display| Failure::usage(format!("{}: {e}", path.display()));
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|e| unfit(&e))?);
    Password::first_line_of(text.as_bytes()).map_err(|e| unfit(&e))
}
