//! Buckets in the address of a request: the virtual-host style of S3.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// The domains below which a name is a bucket's. In requests to all other addresses, IP addresses
/// among them, the path names the bucket.
pub struct Domains(pub Vec<String>);

impl S3Host for Domains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let found = self.0.iter().find_map(|domain| Some((bucket_below(name, domain)?, domain)));
        Ok(match found {
            Some((bucket, domain)) => VirtualHost::new(&domain[..]).with_bucket(bucket),
            None => VirtualHost::new(name),
        })
    }
}

/// The bucket of a name below a domain.
fn bucket_below<'a>(name: &'a str, domain: &str) -> Option<&'a str> {
    let at = name.len().checked_sub(domain.len())?;
    let (above, found) = name.split_at_checked(at)?;
    above.strip_suffix('.').filter(|_| found.eq_ignore_ascii_case(domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_below_a_domain_are_buckets() {
        let domains = Domains(vec!["s3.example.com".into(), "localhost".into()]);
        let bucket = |host: &str| {
            let found = domains.parse_host_header(host).unwrap();
            found.bucket().map(str::to_owned)
        };
        for (host, expected) in [
            ("photos.s3.example.com", Some("photos")),
            ("photos.2026.S3.Example.com:9000", Some("photos.2026")),
            ("photos.localhost:9000", Some("photos")),
            ("s3.example.com", None),
            ("xs3.example.com", None),
            (".s3.example.com", Some("")),
            ("localhost", None),
            ("photos.example.com", None),
            ("127.0.0.1:9000", None),
            ("[::1]:9000", None),
            ("", None),
            ("é", None),
        ] {
            assert_eq!(bucket(host).as_deref(), expected, "{host}");
        }
    }
}
