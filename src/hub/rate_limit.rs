//! How long the Hub asks to wait.
//!
//! `RateLimit: "api";r=0;t=55` and `RateLimit-Policy: "fixed window";"api";q=500;w=300`:
//! <https://huggingface.co/docs/hub/rate-limits>.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The windows are 5 minutes long, so a longer wait is a mistake of someone's.
const LONGEST: Duration = Duration::from_secs(301);

/// The wait that a 429 or a 503 asks for: `RateLimit` first, else `Retry-After` in whole seconds
/// (no client of the Hub's takes dates there).
pub(super) fn requested_wait(headers: &HeaderMap) -> Option<Duration> {
    window_reset(headers).or_else(|| {
        let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
        text.trim().parse().ok().map(Duration::from_secs)
    })
}

/// What an answer says of the window that it was counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stated {
    /// Requests left.
    pub left: u64,
    /// How long until the window is surely over.
    pub reset: Duration,
    /// Requests per window.
    pub quota: Option<u64>,
}

/// What the headers say of the limit named `class`, or of the only one that they name.
pub(super) fn stated(headers: &HeaderMap, class: &str) -> Option<Stated> {
    let item = item_named(headers, "ratelimit", class)?;
    Some(Stated {
        left: parameter(item, "r")?,
        reset: after_reset(parameter(item, "t")?),
        quota: item_named(headers, "ratelimit-policy", class).and_then(|item| parameter(item, "q")),
    })
}

fn item_named<'a>(headers: &'a HeaderMap, header: &str, name: &str) -> Option<&'a str> {
    let items: Vec<_> = headers
        .get_all(header)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| split_outside_quotes(value, ','))
        .collect();
    let is_named = |item: &&str| {
        split_outside_quotes(item, ';').any(|part| part.trim().trim_matches('"') == name)
    };
    match items[..] {
        [only] => Some(only),
        _ => items.into_iter().find(is_named),
    }
}

/// `t + 1` seconds: the window is over only after `t`, and `t` is rounded.
fn after_reset(seconds: u64) -> Duration {
    Duration::from_secs(seconds.saturating_add(1)).min(LONGEST)
}

fn window_reset(headers: &HeaderMap) -> Option<Duration> {
    let mut used_up = None;
    let mut any = None;
    for value in headers.get_all("ratelimit") {
        let Ok(value) = value.to_str() else { continue };
        for item in split_outside_quotes(value, ',') {
            let Some(seconds) = parameter(item, "t") else {
                continue;
            };
            any = any.max(Some(seconds));
            if parameter(item, "r") == Some(0) {
                used_up = used_up.max(Some(seconds));
            }
        }
    }
    let seconds = used_up.or(any)?;
    Some(after_reset(seconds))
}

/// The limit in words, for an error: `"api": 500 requests per 300 s`.
pub(super) fn policy_in_words(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("ratelimit-policy")?.to_str().ok()?;
    let quota = parameter(value, "q")?;
    let window = parameter(value, "w")?;
    let name = split_outside_quotes(value, ';')
        .filter(|part| part.trim().starts_with('"'))
        .last()
        .map(|part| part.trim().trim_matches('"').to_owned())?;
    Some(format!(
        "limit of '{name}': {quota} requests per {window} s"
    ))
}

fn parameter(item: &str, name: &str) -> Option<u64> {
    split_outside_quotes(item, ';').find_map(|part| {
        let (key, value) = part.split_once('=')?;
        (key.trim() == name).then(|| value.trim().parse().ok())?
    })
}

/// Header lists quote their names, and a name may hold the separator.
pub(super) fn split_outside_quotes(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |c: char| {
        let was_escaped = std::mem::take(&mut escaped);
        match c {
            '\\' if quoted && !was_escaped => escaped = true,
            '"' if !was_escaped => quoted = !quoted,
            _ => {}
        }
        c == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(headers: &[(&'static str, &str)]) -> Option<u64> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        requested_wait(&map).map(|wait| wait.as_secs())
    }

    #[test]
    fn a_window_is_told_by_name() {
        let mut map = HeaderMap::new();
        let stated_of = |map: &HeaderMap, class| {
            stated(map, class).map(|s| (s.left, s.reset.as_secs(), s.quota))
        };
        assert_eq!(stated_of(&map, "api"), None);
        map.append("ratelimit", "\"api\";r=489;t=120".parse().unwrap());
        assert_eq!(stated_of(&map, "api"), Some((489, 121, None)));
        assert_eq!(stated_of(&map, "resolvers"), Some((489, 121, None)));
        let policy =
            "\"fixed window\";\"api\";q=500;w=300, \"fixed window\";\"resolvers\";q=5000;w=300";
        map.append("ratelimit-policy", policy.parse().unwrap());
        map.append("ratelimit", "\"resolvers\";r=0;t=9".parse().unwrap());
        assert_eq!(stated_of(&map, "api"), Some((489, 121, Some(500))));
        assert_eq!(stated_of(&map, "resolvers"), Some((0, 10, Some(5000))));
        assert_eq!(stated_of(&map, "pages"), None);
        for broken in [
            "\"api\"",
            "\"api\";r=1",
            "\"api\";r=-1;t=5",
            ";;=,",
            "\"api\";r=x;t=y",
        ] {
            let mut map = HeaderMap::new();
            map.append("ratelimit", broken.parse().unwrap());
            assert_eq!(stated_of(&map, "api"), None, "{broken}");
        }
    }

    #[test]
    fn the_rate_limit_header_wins() {
        type Headers = &'static [(&'static str, &'static str)];
        let cases: &[(Headers, Option<u64>)] = &[
            (&[], None),
            (&[("ratelimit", "\"api\";r=0;t=55")], Some(56)),
            (&[("ratelimit", "\"api\"; r=0 ; t = 55 ")], Some(56)),
            (&[("ratelimit", "\"x;t=9,\";r=0;t=55")], Some(56)),
            (
                &[("ratelimit", "\"api\";r=0;t=55"), ("retry-after", "3")],
                Some(56),
            ),
            (
                &[("ratelimit", "\"api\";r=7;t=200, \"resolvers\";r=0;t=9")],
                Some(10),
            ),
            (&[("ratelimit", "\"api\";r=7;t=20")], Some(21)),
            (&[("ratelimit", "\"api\";r=0;t=4000")], Some(301)),
            (
                &[("ratelimit", "\"api\";r=0;t=18446744073709551615")],
                Some(301),
            ),
            (
                &[("ratelimit", "nonsense"), ("retry-after", " 7 ")],
                Some(7),
            ),
            (&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], None),
            (&[("retry-after", "-1")], None),
        ];
        for (headers, expected) in cases {
            assert_eq!(wait(headers), *expected, "{headers:?}");
        }
    }

    #[test]
    fn a_policy_is_put_into_words() {
        let mut headers = HeaderMap::new();
        let value = "\"fixed window\";\"api\";q=500;w=300";
        headers.insert("ratelimit-policy", value.parse().unwrap());
        assert_eq!(
            policy_in_words(&headers).as_deref(),
            Some("limit of 'api': 500 requests per 300 s")
        );
        headers.insert("ratelimit-policy", "q=1".parse().unwrap());
        assert_eq!(policy_in_words(&headers), None);
    }
}
