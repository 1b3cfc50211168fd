//! `object_store`'s client options, carried over to the `reqwest` client of the Hub.

use std::str::FromStr;
use std::time::Duration;

use object_store::{ClientConfigKey, ClientOptions};
use reqwest::{ClientBuilder, NoProxy, Proxy};
use thiserror::Error;
use url::{Host, Url};

use super::config::truth;

#[derive(Debug, Error)]
pub(super) enum Error {
    #[error("client option {key} is '{value}': expected {expected}")]
    Value {
        key: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("client option {key}: {source}")]
    Reqwest {
        key: &'static str,
        source: reqwest::Error,
    },
    #[error(
        "endpoint {endpoint} is plain http, which would send the token in the clear: use https, or \
         allow it with the client option allow_http"
    )]
    PlainHttp { endpoint: Url },
}

/// A client builder with the options set. Root certificates given as bytes cannot be read back from
/// [`ClientOptions`]: those of the system count (`SSL_CERT_FILE`), and a proxy's.
pub(super) fn client_builder(
    options: &ClientOptions,
    endpoint: &Url,
) -> Result<ClientBuilder, Error> {
    let get = |key| options.get_config_value(&key);
    if endpoint.scheme() == "http"
        && !is_loopback(endpoint)
        && !flag(options, ClientConfigKey::AllowHttp)?
    {
        return Err(Error::PlainHttp {
            endpoint: endpoint.clone(),
        });
    }
    if flag(options, ClientConfigKey::NoSystemCertificates)? {
        return Err(Error::Value {
            key: "no_system_certificates",
            value: "true".into(),
            expected: "false: the certificates given beside it cannot be read back, so nothing would \
                       be trusted; point SSL_CERT_FILE at them",
        });
    }
    let user_agent = get(ClientConfigKey::UserAgent).unwrap_or_else(default_user_agent);
    let mut builder = ClientBuilder::new().user_agent(user_agent);
    if let Some(headers) = options.get_default_headers() {
        builder = builder.default_headers(headers.clone());
    }
    builder = timeouts(builder, options)?;
    builder = http2(builder, options)?;
    builder = proxy(builder, options)?;
    if let Some(max) = parsed(options, ClientConfigKey::PoolMaxIdlePerHost, "a number")? {
        builder = builder.pool_max_idle_per_host(max);
    }
    if flag(options, ClientConfigKey::AllowInvalidCertificates)? {
        builder = builder.danger_accept_invalid_certs(true);
    }
    Ok(builder)
}

fn timeouts(mut builder: ClientBuilder, options: &ClientOptions) -> Result<ClientBuilder, Error> {
    if let Some(timeout) = duration(options, ClientConfigKey::ConnectTimeout)? {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(timeout) = duration(options, ClientConfigKey::PoolIdleTimeout)? {
        builder = builder.pool_idle_timeout(timeout);
    }
    // `timeout` covers a whole response in reqwest, which would cut a long download; here it bounds
    // the wait for each read.
    let read = match duration(options, ClientConfigKey::ReadTimeout)? {
        Some(timeout) => Some(timeout),
        None => duration(options, ClientConfigKey::Timeout)?,
    };
    if let Some(timeout) = read {
        builder = builder.read_timeout(timeout);
    }
    Ok(builder)
}

fn http2(mut builder: ClientBuilder, options: &ClientOptions) -> Result<ClientBuilder, Error> {
    // HTTP/2 itself is not compiled in; its settings have nothing to act on.
    if flag(options, ClientConfigKey::Http2Only)? {
        return Err(Error::Value {
            key: "http2_only",
            value: "true".into(),
            expected: "false: the client of the Hub speaks HTTP/1.1",
        });
    }
    if flag(options, ClientConfigKey::Http1Only)? {
        builder = builder.http1_only();
    }
    Ok(builder)
}

fn proxy(builder: ClientBuilder, options: &ClientOptions) -> Result<ClientBuilder, Error> {
    let Some(url) = options.get_config_value(&ClientConfigKey::ProxyUrl) else {
        return Ok(builder);
    };
    let wrap = |key| move |source| Error::Reqwest { key, source };
    let mut proxy = Proxy::all(url).map_err(wrap("proxy_url"))?;
    if let Some(excludes) = options.get_config_value(&ClientConfigKey::ProxyExcludes) {
        proxy = proxy.no_proxy(NoProxy::from_string(&excludes));
    }
    let mut builder = builder.proxy(proxy);
    if let Some(pem) = options.get_config_value(&ClientConfigKey::ProxyCaCertificate) {
        let certificate =
            reqwest::Certificate::from_pem(pem.as_bytes()).map_err(wrap("proxy_ca_certificate"))?;
        builder = builder.tls_certs_merge([certificate]);
    }
    Ok(builder)
}

fn duration(options: &ClientOptions, key: ClientConfigKey) -> Result<Option<Duration>, Error> {
    let name = name(&key);
    let Some(value) = options.get_config_value(&key) else {
        return Ok(None);
    };
    match humantime::parse_duration(&value) {
        Ok(duration) => Ok(Some(duration)),
        Err(_) => Err(Error::Value {
            key: name,
            value,
            expected: "a duration such as '30s' or '5m'",
        }),
    }
}

fn flag(options: &ClientOptions, key: ClientConfigKey) -> Result<bool, Error> {
    let Some(value) = options.get_config_value(&key) else {
        return Ok(false);
    };
    truth(&value).ok_or_else(|| Error::Value {
        key: name(&key),
        value,
        expected: "true or false",
    })
}

fn parsed<T: FromStr>(
    options: &ClientOptions,
    key: ClientConfigKey,
    expected: &'static str,
) -> Result<Option<T>, Error> {
    let name = name(&key);
    match options.get_config_value(&key) {
        None => Ok(None),
        Some(value) => match value.parse() {
            Ok(parsed) => Ok(Some(parsed)),
            Err(_) => Err(Error::Value {
                key: name,
                value,
                expected,
            }),
        },
    }
}

fn name(key: &ClientConfigKey) -> &'static str {
    match key {
        ClientConfigKey::ConnectTimeout => "connect_timeout",
        ClientConfigKey::ReadTimeout => "read_timeout",
        ClientConfigKey::Timeout => "timeout",
        ClientConfigKey::PoolIdleTimeout => "pool_idle_timeout",
        ClientConfigKey::PoolMaxIdlePerHost => "pool_max_idle_per_host",
        ClientConfigKey::Http1Only => "http1_only",
        ClientConfigKey::Http2Only => "http2_only",
        ClientConfigKey::AllowInvalidCertificates => "allow_invalid_certificates",
        ClientConfigKey::AllowHttp => "allow_http",
        ClientConfigKey::NoSystemCertificates => "no_system_certificates",
        _ => "of the HTTP client",
    }
}

fn default_user_agent() -> String {
    concat!("hfbucket/", env!("CARGO_PKG_VERSION")).to_owned()
}

/// Whether the endpoint is on this machine, where nobody listens on the way.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(options: ClientOptions, endpoint: &str) -> Result<(), String> {
        client_builder(&options, &Url::parse(endpoint).unwrap())
            .map(|_| ())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn plain_http_needs_loopback_or_a_word() {
        for endpoint in [
            "https://huggingface.co",
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://localhost",
        ] {
            build(ClientOptions::new(), endpoint).unwrap();
        }
        let error = build(ClientOptions::new(), "http://hub.example.com").unwrap_err();
        assert!(error.contains("allow_http"), "{error}");
        for value in ["true", "1", "ON"] {
            let options = ClientOptions::new().with_config(ClientConfigKey::AllowHttp, value);
            build(options, "http://hub.example.com").unwrap();
        }
    }

    #[test]
    fn a_bad_value_is_named() {
        let options = ClientOptions::new().with_config(ClientConfigKey::Timeout, "soon");
        let error = build(options, "https://huggingface.co").unwrap_err();
        assert!(
            error.contains("timeout") && error.contains("soon"),
            "{error}"
        );
        let options = ClientOptions::new().with_config(ClientConfigKey::AllowHttp, "perhaps");
        let error = build(options, "http://hub.example.com").unwrap_err();
        assert!(error.contains("perhaps"), "{error}");
        let key = ClientConfigKey::NoSystemCertificates;
        let error = build(ClientOptions::new().with_config(key, "true"), "https://h").unwrap_err();
        assert!(error.contains("SSL_CERT_FILE"), "{error}");
        let options = ClientOptions::new().with_proxy_url("::");
        assert!(
            build(options, "https://huggingface.co")
                .unwrap_err()
                .contains("proxy_url")
        );
    }
}
