//! Sets that an earlier version wrote (before the checksums of what is written came from memory), kept as data: they stay readable.

use crate::folder::Folder;
use reshard_shards::{ConvertOptions, Format, ShardSet, convert};
use std::path::Path;

#[test]
fn sets_of_earlier_versions_are_read() {
    let folder = Folder::new("kept");
    // What they were made with: `reshard make --shape 12x10 --layout 2x2/3x4 --seed 7`, that converted to
    // `(block, *) on 2x1 memory=row`, and `reshard make --shape 30 --layout 3/4 --format raw --type f32`.
    for (name, format, elements, to) in [
        ("npy", Format::Npy, 120, "3x1/5x10 of 12x10 memory=row"),
        ("safetensors", Format::Safetensors, 120, "1x2/5x10 of 12x10 memory=row"),
        ("raw", Format::Raw, 30, "4/3 of 30"),
    ] {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sets/kept").join(name);
        let set = ShardSet::open(kept).unwrap();
        assert_eq!(set.verify(|_, _| {}).unwrap().elements, elements, "{name}");
        let new = folder.0.join(name);
        let options = ConvertOptions::default().with_format(format).with_box_bytes(100);
        convert(&set, &new, &to.parse().unwrap(), &options, |_, _| {}).unwrap();
        assert_eq!(ShardSet::open(&new).unwrap().verify(|_, _| {}).unwrap().elements, elements, "{name}");
    }
}
