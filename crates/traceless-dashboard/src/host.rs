//! The header `Host`: a page from elsewhere must not reach the server under a name of its own.
//!
//! A browser lets a page of `evil.example` speak to `evil.example` only. If that name comes to mean
//! 127.0.0.1, the page speaks to a server of this machine, and the header still has the name. So a
//! request is served only under an address, under `localhost`, or under the name that the server
//! was started with.

use std::net::IpAddr;

/// Whether requests with this header are served. `name` is what the server was started with, with
/// its port.
pub fn is_served(header: &str, name: &str) -> bool {
    let host = without_port(header);
    if host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case(without_port(name)) {
        return true;
    }
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    address.unwrap_or(host).parse::<IpAddr>().is_ok()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::is_served;

    #[test]
    fn addresses_and_the_own_name_are_served() {
        for header in [
            "127.0.0.1:9",
            "127.0.0.1",
            "localhost:9",
            "LOCALHOST",
            "[::1]:9",
            "[::1]",
            "192.0.2.7:80",
            "Disk.example:8080",
        ] {
            assert!(is_served(header, "disk.example:9"), "{header}");
        }
    }

    #[test]
    fn foreign_names_are_refused() {
        for header in [
            "",
            "evil.example",
            "evil.example:9",
            "127.0.0.1.evil.example",
            "localhost.evil.example:9",
            "127.0.0.1:9@evil.example",
            "[::1].evil.example",
            "[::1",
            "2130706433",
        ] {
            assert!(!is_served(header, "127.0.0.1:9"), "{header}");
        }
    }
}
