//! The files of the web page, as they were built from `web/` and packed with gzip.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Name without folder; that of what changes has a part of its digest in it.
    pub name: &'static str,
    /// Its content (RFC 1952).
    pub gzip: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// The name of the page itself.
pub const INDEX: &str = "index.html";

/// A file of the page.
pub fn asset(name: &str) -> Option<Asset> {
    PAGE?.iter().find(|asset| asset.name == name).copied()
}

/// Why there is no page in this build; none when there is.
pub fn missing() -> Option<&'static str> {
    PAGE.is_none().then_some(WHY)
}

impl Asset {
    /// Its media type.
    pub fn media_type(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn text(asset: Asset) -> String {
        let mut text = String::new();
        flate2::read::GzDecoder::new(asset.gzip)
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    /// Without a built page the test is skipped with a message.
    #[test]
    fn the_page_has_all_files_that_it_requests_and_nothing_inline() {
        let Some(index) = asset(INDEX) else {
            assert!(!missing().unwrap().is_empty());
            return;
        };
        assert_eq!(missing(), None);
        let html = text(index);
        let mut files = 0;
        for part in html.split("console/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(asset(name).is_some(), "{name}");
            files += 1;
        }
        assert!(files >= 3, "{html}");
        for inline in ["<style", " style=", " onload=", "<script>"] {
            assert!(!html.contains(inline), "{inline}");
        }
        let packed: usize = PAGE.unwrap().iter().map(|asset| asset.gzip.len()).sum();
        assert!(packed < 500 << 10, "{packed} bytes");
    }
}
