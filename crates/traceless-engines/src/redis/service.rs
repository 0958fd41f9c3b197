//! URLs of several servers: of a cluster, or of sentinels and the service that they watch.

use super::sentinel::Sentinels;
use crate::address::Options;
use crate::tls::TlsFiles;
use redis::{ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};
use std::fs;
use url::Url;
use zeroize::Zeroizing;

/// The port of a sentinel if the URL names none.
const SENTINEL_PORT: u16 = 26379;

/// The service of a URL of the form `redis+sentinel://SENTINEL,.../SERVICE[/DATABASE]`. User and
/// password of the URL are for the servers; options have the ones of the sentinels, if any.
pub fn of_url(url: &Url, options: &mut Options, tls: TlsFiles) -> Result<Sentinels, String> {
    const FORM: &str = "redis+sentinel://HOST:PORT,.../SERVICE[/DATABASE]";
    let form = || format!("a URL of sentinels is {FORM}");
    let mut parts = url.path().trim_matches('/').split('/');
    let service = parts.next().filter(|name| is_service(name)).ok_or_else(form)?;
    let database = parts.next().unwrap_or_default();
    if parts.next().is_some() {
        return Err(form());
    }
    let mut url = url.clone();
    url.set_path(database);
    let own = RedisConnectionInfo {
        username: options.get("sentinel_username"),
        password: sentinel_password(options)?,
        ..RedisConnectionInfo::default()
    };
    let servers = servers(&url, options, Some(SENTINEL_PORT))?;
    let infos = servers.iter().map(|url| url.as_str().into_connection_info());
    let infos = infos.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    // What reaches a server is the same but for the address.
    let server = infos.first().cloned().ok_or_else(form)?;
    let sentinel = |info: ConnectionInfo| ConnectionInfo { redis: own.clone(), ..info };
    let sentinels = infos.into_iter().map(sentinel).collect();
    Ok(Sentinels::new(sentinels, service.to_owned(), server, tls))
}

/// The server of a URL, and further ones of the form `HOST:PORT,...`, each as the URL of a single
/// server: the library knows no other one. With a `port` they need none of their own.
pub fn servers(url: &Url, options: &mut Options, port: Option<u16>) -> Result<Vec<Url>, String> {
    let scheme = url.scheme();
    let single = scheme.split('+').next().unwrap_or(scheme);
    let first = url.as_str().replacen(scheme, single, 1);
    let mut first: Url = first.parse().map_err(|e| format!("no URL of a server: {e}"))?;
    if let (None, Some(port)) = (first.port(), port) {
        first.set_port(Some(port)).map_err(|()| "no URL of a server")?;
    }
    let mut servers = vec![first.clone()];
    let further = options.get("servers");
    for server in further.iter().flat_map(|servers| servers.split(',')) {
        let wrong = || format!("servers={server} is not HOST:PORT,...");
        let (host, own_port) = match server.rsplit_once(':') {
            Some((host, text)) if !text.ends_with(']') => {
                (host, text.parse().map_err(|_| wrong())?)
            }
            _ => (server, port.ok_or_else(wrong)?),
        };
        let mut other = first.clone();
        other.set_host(Some(host).filter(|host| !host.is_empty())).map_err(|_| wrong())?;
        other.set_port(Some(own_port)).map_err(|()| wrong())?;
        servers.push(other);
    }
    Ok(servers)
}

/// Whether Redis would take the name for a service.
fn is_service(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.chars().all(is_plain)
}

fn sentinel_password(options: &mut Options) -> Result<Option<String>, String> {
    let password = options.get("sentinel_password");
    let Some(path) = options.get("sentinel_password_file") else { return Ok(password) };
    if password.is_some() {
        return Err("sentinel_password= and sentinel_password_file= exclude each other".to_owned());
    }
    let text = fs::read_to_string(&path).map(Zeroizing::new);
    let text = text.map_err(|e| format!("sentinel_password_file={path}: {e}"))?;
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}
