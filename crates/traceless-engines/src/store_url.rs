//! URLs of stores.

use crate::address::{EngineAddress, Options};
use url::Url;

/// The store with this URL. `password` replaces the URL's own.
///
/// | URL | store |
/// |---|---|
/// | `redis://[USER:PASSWORD@]HOST[:PORT][/DB]` | Redis or Valkey; `rediss://` with TLS |
/// | `redis+cluster://…`, `rediss+cluster://…` | the cluster with that server |
/// | `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],…/SERVICE[/DB]` | its primary; `rediss…` |
/// | `s3://BUCKET[/PREFIX]` | a bucket; keys as for all clients of S3, in the environment |
/// | `postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE` | PostgreSQL |
///
/// After a question mark come options: `store=NAME` in Redis and PostgreSQL; `endpoint=URL` and
/// `region=NAME` in S3. In Redis `replicas=N`; `servers=HOST:PORT,...` for further servers of a
/// cluster; `sentinel_username`, `sentinel_password` or `sentinel_password_file`; and
/// `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile` with TLS. In PostgreSQL `sslmode`,
/// `sslrootcert`, `sslcert` and `sslkey`, and options of connections as `connect_timeout`.
pub fn parse(text: &str, password: Option<&str>) -> Result<Box<dyn EngineAddress>, String> {
    let (text, further) = split_servers(text);
    let mut url = Url::parse(&text).map_err(|e| format!("no URL of a store: {e}"))?;
    if url.fragment().is_some() {
        return Err("no URL of a store: # begins no option; in a password it is %23".to_owned());
    }
    if let Some(password) = password {
        let without = format!("{}: has no place for a password", url.scheme());
        url.set_password(Some(password)).map_err(|()| without)?;
    }
    let mut options = Options::take(&mut url);
    if let Some(servers) = further {
        options.add("servers", servers);
    }
    match url.scheme() {
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "redis+sentinel"
        | "rediss+sentinel" => crate::redis::address(&url, options),
        #[cfg(feature = "s3")]
        "s3" => crate::s3::address(&url, options),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => crate::postgres::address(&url, options),
        scheme => Err(unknown(scheme)),
    }
}

fn unknown(scheme: &str) -> String {
    const KNOWN: [&str; 3] = ["postgres", "redis", "s3"];
    const ENGINES: &str = "file, postgres, redis, redis+cluster, redis+sentinel and s3";
    let begin = scheme.split('+').next().unwrap_or_default();
    if KNOWN.iter().any(|known| begin.starts_with(known)) {
        return format!("this program was built without the engine of {scheme}: URLs");
    }
    format!("{scheme}: is no engine: there are {ENGINES}")
}

/// Takes the servers after the first one from a URL of several: no reader of URLs knows them.
fn split_servers(text: &str) -> (String, Option<&str>) {
    let whole = || (text.to_owned(), None);
    let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| scheme.contains('+'))
    else {
        return whole();
    };
    let (place, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // A comma may be in a password.
    let (user, hosts) = place.split_at(place.rfind('@').map_or(0, |at| at + 1));
    let Some((first, further)) = hosts.split_once(',') else { return whole() };
    (format!("{scheme}://{user}{first}{path}"), Some(further))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_understood_or_refused() {
        for right in [
            "redis://127.0.0.1",
            "redis://:secret@[::1]:7000/3?store=a.b&replicas=2",
            "rediss+cluster://user:secret@host:7000/?servers=other:7001,[::1]:7002",
            "s3://bucket",
            "s3://bucket/a/prefix?endpoint=http://127.0.0.1:9000&region=eu-1",
            "postgres://user@host/database?store=tree",
            "postgresql://user@host/database?connect_timeout=3",
        ] {
            assert!(parse(right, None).is_ok(), "{right}: {:?}", parse(right, None).err());
        }
        for (wrong, reason) in [
            ("tree", "no URL"),
            ("file:folder", "no engine"),
            ("mysql://host/", "no engine"),
            ("redis://host?store=a*b", "no name of a store"),
            ("redis://host?replicas=many", "replicas"),
            ("redis://host?replica=1", "replica= is no option"),
            ("redis://host?region=eu", "region= is no option"),
            ("redis://host?servers=other:7001", "servers= is no option"),
            ("redis+cluster://host?servers=other", "servers=other is not"),
            ("s3://bucket?store=x", "store= is no option"),
            ("s3://bucket?regoin=eu", "regoin= is no option"),
            ("s3:///prefix", "bucket"),
            ("postgres://host:port/", "no URL"),
        ] {
            let refused = parse(wrong, None).err().expect(wrong);
            assert!(refused.contains(reason), "{wrong}: {refused}");
        }
    }

    #[test]
    fn a_password_is_put_into_the_url() {
        assert!(parse("redis://ann@host/", Some("a b&c@d")).is_ok());
        let refused = parse("mailto:ann", Some("secret")).err().unwrap();
        assert!(!refused.contains("secret"), "{refused}");
    }
}
