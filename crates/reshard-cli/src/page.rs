//! The page to explore: one file with the two layouts, the messages and steps of every strategy and their timelines as data, and a script
//! that draws them. The script looks things up and runs messages in virtual time; it plans nothing.

pub mod data;

use crate::failure::Failure;
use crate::simulate::SimulationRequest;
use data::PageData;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// In the order in which they are read: each uses only those before it.
const SCRIPTS: [&str; 4] = [
    include_str!("page/simulate.js"),
    include_str!("page/lookup.js"),
    include_str!("page/draw.js"),
    include_str!("page/page.js"),
];

/// The page of a redistribution. `live` is the path at which other layouts can be asked for; without it, the page says that they cannot.
pub fn page(request: &SimulationRequest, live: Option<&str>) -> Result<String, Failure> {
    let data = serde_json::to_string(&PageData::new(request, live)?)?;
    Ok(PAGE
        .replace("{{style}}", STYLE)
        .replace("{{script}}", &SCRIPTS.join("\n"))
        // Last, so that nothing in it is replaced.
        .replace("{{data}}", &quoted(&data)))
}

/// JSON that may stand in a script element: what could end the element is written as an escape.
fn quoted(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    #[test]
    fn data_cannot_end_its_element() {
        assert_eq!(super::quoted("\"</script>\""), "\"\\u003c/script>\"");
    }
}
