//! The addresses that the OAuth client may send requests to. Metadata is untrusted: without this check, a server could
//! make the gateway send requests to hosts that only the gateway can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::Tls;

/// The kind of network that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressKind {
    Public,
    Private,
    Loopback,
    /// Link-local (including cloud metadata), multicast, unspecified and the like: never the address of a server.
    Nowhere,
}

/// Allows public addresses, and besides them only the kind of address that a connection to the registered server had.
/// Its name is not looked up again: that answer could be another one.
#[derive(Clone)]
pub struct AddressPolicy {
    allowed: Vec<AddressKind>,
    /// What to do about a refusal.
    advice: &'static str,
}

impl AddressPolicy {
    /// The policy for a server at `peer`, if that is known. With `allow_private` (OAUTH_ALLOW_PRIVATE), private and
    /// loopback addresses are allowed for every server.
    pub fn around(peer: Option<IpAddr>, allow_private: bool) -> Self {
        let mut allowed = vec![AddressKind::Public];
        if allow_private {
            allowed.extend([AddressKind::Private, AddressKind::Loopback]);
        }
        allowed.extend(peer.map(AddressKind::of).filter(|kind| *kind != AddressKind::Nowhere));
        let advice =
            "which is not allowed in the metadata of this server; set OAUTH_ALLOW_PRIVATE=true to allow it";
        Self { allowed, advice }
    }

    /// The policy for documents that OAuth clients publish about themselves.
    pub fn of_documents(allow_private: bool) -> Self {
        let advice = "which is not allowed; name its host in OAUTH_CLIENT_HOSTS to allow it";
        Self { advice, ..Self::around(None, allow_private) }
    }

    pub fn reaches_private(&self) -> bool {
        self.allowed.contains(&AddressKind::Private)
    }

    /// Refuses URLs that are not http or https, and IP addresses that are not allowed; host names are checked when they
    /// are resolved.
    pub fn check(&self, url: &str) -> Result<(), String> {
        let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let address = match parsed.as_ref().and_then(Url::host) {
            None => return Err(format!("{url} is not an http or https URL")),
            Some(Host::Domain(_)) => return Ok(()),
            Some(Host::Ipv4(address)) => IpAddr::from(address),
            Some(Host::Ipv6(address)) => IpAddr::from(address),
        };
        if self.allows(address) { Ok(()) } else { Err(self.refusal(url)) }
    }

    /// An HTTP client that follows no redirects by itself, uses no proxy from the environment, and has a timeout.
    pub fn client(&self, tls: &Tls, limit: Duration) -> Result<reqwest::Client, String> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.config().as_ref().clone())
            .dns_resolver(self.clone())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(limit)
            .build();
        client.map_err(|error| error.to_string())
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.allowed.contains(&AddressKind::of(address))
    }

    fn refusal(&self, place: &str) -> String {
        format!("{place} has a private address, {}", self.advice)
    }
}

impl Resolve for AddressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<_> = found.filter(|address| policy.allows(address.ip())).collect();
            if allowed.is_empty() {
                return Err(policy.refusal(name.as_str()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

impl AddressKind {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => match embedded(address) {
                Some(address) => Self::of_v4(address),
                None => Self::of_v6(address),
            },
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [first, second, ..] = address.octets();
        let is_shared = first == 100 && (64..128).contains(&second);
        let is_benchmark = first == 198 && (18..20).contains(&second);
        if address.is_loopback() {
            AddressKind::Loopback
        } else if address.is_private() || is_shared {
            AddressKind::Private
        } else if first == 0 || first >= 224 || address.is_link_local() || is_benchmark {
            AddressKind::Nowhere
        } else {
            AddressKind::Public
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if address.is_loopback() {
            AddressKind::Loopback
        } else if address.is_unique_local() {
            AddressKind::Private
        } else if address.is_unspecified() || address.is_multicast() || address.is_unicast_link_local() {
            AddressKind::Nowhere
        } else {
            AddressKind::Public
        }
    }
}

/// The IPv4 address embedded in an IPv6 address: mapped, NAT64, 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(peer: &str, allow_private: bool) -> AddressPolicy {
        AddressPolicy::around(Some(peer.parse().unwrap()), allow_private)
    }

    #[test]
    fn a_public_server_reaches_nothing_private() {
        let policy = around("93.184.215.14", false);
        assert!(policy.check("https://93.184.215.15/token").is_ok());
        for url in [
            "http://127.0.0.1/token",
            "http://10.0.0.1/token",
            "http://169.254.169.254/latest/meta-data",
            "http://[::1]/token",
            "http://[::ffff:10.0.0.1]/token",
            "http://[64:ff9b::a00:1]/token",
            "http://0.0.0.0/token",
            "http://100.64.0.1/token",
            "file:///etc/passwd",
            "gopher://93.184.215.15/",
        ] {
            assert!(policy.check(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_private_server_reaches_its_own_kind_of_place() {
        let loopback = around("127.0.0.1", false);
        assert!(loopback.check("http://[::1]:2/token").is_ok());
        assert!(loopback.check("http://10.0.0.1/token").is_err());
        let private = around("10.0.0.4", false);
        assert!(private.check("http://192.168.1.1/token").is_ok());
        assert!(private.check("http://127.0.0.1/token").is_err());
        assert!(private.reaches_private() && !loopback.reaches_private());
    }

    #[test]
    fn the_setting_opens_private_places_but_never_link_local_ones() {
        let policy = around("93.184.215.14", true);
        assert!(policy.check("http://10.0.0.1/token").is_ok());
        assert!(policy.check("http://127.0.0.1/token").is_ok());
        assert!(policy.check("http://169.254.169.254/").is_err());
    }

    #[test]
    fn an_unknown_or_useless_address_of_the_server_opens_nothing() {
        let link_local = around("169.254.169.254", false);
        for policy in [AddressPolicy::around(None, false), link_local] {
            assert!(policy.check("https://93.184.215.15/token").is_ok());
            for url in ["http://127.0.0.1/", "http://10.0.0.1/", "http://169.254.169.254/"] {
                assert!(policy.check(url).is_err(), "{url}");
            }
        }
    }

    #[tokio::test]
    async fn names_are_judged_by_where_they_lead() {
        let policy = around("93.184.215.14", false);
        assert!(policy.resolve("localhost".parse().unwrap()).await.is_err());
        let policy = around("127.0.0.1", false);
        assert!(policy.resolve("localhost".parse().unwrap()).await.is_ok());
    }
}
