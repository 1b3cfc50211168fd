//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `1048576`, `512KiB`, `2 MiB`, `1.5GiB`, `2MB` (decimal).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Size(pub(super) u64);

const UNITS: [(&str, u64); 9] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || {
            format!(
                "'{text}' is no size: write bytes, or a number with KiB, MiB, GiB, KB, MB or GB"
            )
        };
        let lower = text.trim().to_ascii_lowercase();
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, bytes)| Some((lower.strip_suffix(name)?.trim_end(), *bytes)))
            .unwrap_or((&lower, 1));
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit).map(Self).ok_or_else(fault);
        }
        let number: f64 = number.parse().map_err(|_| fault())?;
        let bytes = number * unit as f64;
        // Beyond this, f64 no longer counts single bytes.
        if !(0.0..9e15).contains(&bytes) {
            return Err(fault());
        }
        Ok(Self(bytes as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1024 => write!(f, "{} B", self.0),
            1024..1_048_576 => write!(f, "{:.1} KiB", bytes / 1024.),
            1_048_576..1_073_741_824 => write!(f, "{:.1} MiB", bytes / 1_048_576.),
            _ => write!(f, "{:.2} GiB", bytes / 1_073_741_824.),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        for (text, bytes) in [
            ("0", 0),
            ("123", 123),
            ("123 B", 123),
            ("2MiB", 2 << 20),
            (" 2 mib ", 2 << 20),
            ("1.5GiB", 3 << 29),
            ("64KB", 64_000),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in [
            "",
            "MiB",
            "-1",
            "2 MiBs",
            "1e30GiB",
            "nan",
            "99999999999GiB",
        ] {
            assert!(
                text.parse::<Size>().unwrap_err().contains("is no size"),
                "{text}"
            );
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        let shown = |bytes| Size(bytes).to_string();
        assert_eq!(shown(5), "5 B");
        assert_eq!(shown(1536), "1.5 KiB");
        assert_eq!(shown(2 << 20), "2.0 MiB");
        assert_eq!(shown(3 << 29), "1.50 GiB");
    }
}
