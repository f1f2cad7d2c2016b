//! Tests of whole, damaged and hostile images.

use image::codecs::jpeg::JpegEncoder;
use image::codecs::webp::WebPEncoder;
use image::{ExtendedColorType, Rgb, RgbImage};

use super::*;

fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Makes a picture of random pixels.
fn noise(width: u32, height: u32) -> RgbImage {
    let mut state = 1_u32;
    RgbImage::from_fn(width, height, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [_, red, green, blue] = state.to_be_bytes();
        Rgb([red, green, blue])
    })
}

fn png(picture: &RgbImage) -> Vec<u8> {
    let mut out = Vec::new();
    picture.write_with_encoder(PngEncoder::new(&mut out)).unwrap();
    out
}

fn jpeg(picture: &RgbImage) -> Vec<u8> {
    let mut out = Vec::new();
    picture.write_with_encoder(JpegEncoder::new(&mut out)).unwrap();
    out
}

fn webp(picture: &RgbImage) -> Vec<u8> {
    let mut out = Vec::new();
    let (width, height) = picture.dimensions();
    WebPEncoder::new_lossless(&mut out).encode(picture, width, height, ExtendedColorType::Rgb8).unwrap();
    out
}

fn size(png: &[u8]) -> (u32, u32) {
    let picture = image::load_from_memory_with_format(png, ImageFormat::Png).unwrap();
    (picture.width(), picture.height())
}

/// Computes the CRC-32 of a PNG chunk.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

/// Returns the PNG with other sides, and a checksum that matches them.
fn claiming(png: &[u8], width: u32, height: u32) -> Vec<u8> {
    let mut png = png.to_vec();
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let crc = crc(&png[12..29]);
    png[29..33].copy_from_slice(&crc.to_be_bytes());
    png
}

// Holds: c5.images
#[test]
fn png_stays_unchanged_and_others_become_png() {
    let small = noise(8, 5);
    let original = png(&small);
    assert_eq!(picture(&base64(&original)), Ok(original.clone()));
    assert_eq!(picture(&format!("data:image/png;base64,{}", base64(&original))), Ok(original));
    for (kind, bytes) in [("image/jpeg", jpeg(&small)), ("image/jpg", jpeg(&small)), ("image/webp", webp(&small))] {
        let converted = picture(&format!(" DATA:{};x=y;BASE64,{}\n", kind.to_uppercase(), base64(&bytes))).unwrap();
        assert_eq!(size(&converted), (8, 5));
        assert_eq!(picture(&base64(&bytes)).unwrap(), converted);
    }
}

#[test]
fn base64_may_have_line_breaks_and_lack_padding() {
    let original = png(&noise(9, 9));
    let text = base64(&original);
    let lines: Vec<&str> = text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    assert_eq!(picture(&lines.join("\r\n")), Ok(original.clone()));
    assert_eq!(picture(text.trim_end_matches('=')), Ok(original));
}

#[test]
fn text_that_is_not_an_image_is_refused() {
    let good = base64(&png(&noise(2, 2)));
    let svg = base64(b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>");
    let html = base64(b"<!doctype html><script>alert(1)</script>");
    for (text, fault) in [
        (String::new(), NOT_AN_IMAGE),
        ("  \n".to_owned(), NOT_AN_IMAGE),
        ("no image".to_owned(), NOT_BASE64),
        ("?".to_owned(), NOT_BASE64),
        ("data:".to_owned(), NOT_BASE64),
        (format!("data:image/png,{good}"), NOT_BASE64),
        (format!("data:image/png;utf8,{good}"), NOT_BASE64),
        (format!("data:image/png;base64 {good}"), NOT_BASE64),
        (format!("data:text/html;base64,{good}"), NOT_AN_IMAGE),
        (format!("data:;base64,{good}"), NOT_AN_IMAGE),
        (format!("data:image/svg+xml;base64,{svg}"), NOT_AN_IMAGE),
        (format!("data:image/png;base64,{svg}"), NOT_AN_IMAGE),
        (format!("data:image/png;base64,{html}"), NOT_AN_IMAGE),
        (format!("data:image/jpeg;base64,{good}"), LYING),
        (format!("data:image/webp;base64,{good}"), LYING),
        (base64(b"GIF89a\x01\0\x01\0\0\0\0;"), NOT_AN_IMAGE),
    ] {
        assert_eq!(picture(&text), Err(fault), "{text}");
    }
}

#[test]
fn truncated_image_is_refused() {
    let small = noise(20, 20);
    for bytes in [png(&small), jpeg(&small), webp(&small)] {
        // A JPEG decoder needs only the head, and fills missing parts with grey.
        let head = bytes.windows(2).position(|pair| pair == [0xff, 0xda]).filter(|_| bytes.starts_with(&[0xff, 0xd8]));
        for end in 0..head.unwrap_or(bytes.len() / 2) {
            assert!(picture(&base64(&bytes[..end])).is_err(), "{end} of {} bytes", bytes.len());
        }
    }
}

#[test]
fn png_with_a_wrong_checksum_is_refused() {
    let mut bytes = png(&noise(20, 20));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    assert_eq!(picture(&base64(&bytes)), Err(NOT_WHOLE));
}

// Holds: c5.images
#[test]
fn large_sides_are_refused_before_decoding() {
    let tiny = png(&noise(1, 1));
    for (width, height) in [(65_535, 65_535), (4_097, 1), (1, 4_097), (u32::MAX >> 1, u32::MAX >> 1)] {
        let refused = picture(&base64(&claiming(&tiny, width, height)));
        assert!(refused == Err(TOO_WIDE) || refused == Err(TOO_HEAVY) && width > 65_535, "{width}: {refused:?}");
    }
    // The sides are within bounds, but there are pixels for one only.
    assert_eq!(picture(&base64(&claiming(&tiny, 4_096, 4_096))), Err(NOT_WHOLE));
    let mut wide = jpeg(&noise(8, 8));
    let frame = wide.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    wide[frame + 5..frame + 9].copy_from_slice(&[0xff; 4]);
    assert_eq!(picture(&base64(&wide)), Err(TOO_WIDE));
}

#[test]
fn largest_picture_is_accepted_and_halved_if_it_grows() {
    let plain = RgbImage::new(4_096, 4_096);
    assert_eq!(size(&picture(&base64(&png(&plain))).unwrap()), (4_096, 4_096));
    // The picture would be twelve times as large as PNG.
    let mut bytes = Vec::new();
    noise(1_600, 1_600).write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, 30)).unwrap();
    assert!(bytes.len() < IMAGE_BYTES_MAX);
    let shown = picture(&base64(&bytes)).unwrap();
    assert!(shown.len() <= SHOWN_BYTES_MAX);
    assert_eq!(size(&shown), (800, 800));
}

/// Most memory that decoding a picture may take, in bytes: see docs/limits.md.
const DECODING_BYTES_MAX: u64 = 224 << 20;

/// Reads a figure of this process's memory, in bytes.
fn memory(figure: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Reads a picture; returns the result and the most memory taken. The test needs a process of its own.
fn measured(bytes: &[u8]) -> (Result<Vec<u8>, PictureFault>, u64) {
    let (text, before) = (base64(bytes), memory("VmRSS"));
    // Resets the kernel's record of the highest memory use.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let read = picture(&text);
    (read, memory("VmHWM").saturating_sub(before))
}

/// Makes a chunk of a PNG.
fn png_chunk(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let named = [kind.as_slice(), content].concat();
    [&(content.len() as u32).to_be_bytes(), named.as_slice(), &crc(&named).to_be_bytes()].concat()
}

/// Returns the PNG with more chunks after its head.
fn with_chunks(png: &[u8], chunks: &[Vec<u8>]) -> Vec<u8> {
    [&png[..33], &chunks.concat(), &png[33..]].concat()
}

/// Compresses this many MiB of zeros for a PNG: the pixels of a plain picture.
fn zeros(mebibytes: usize) -> Vec<u8> {
    use std::io::Write as _;
    let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    (0..mebibytes).for_each(|_| out.write_all(&[0; 1 << 20]).unwrap());
    out.finish().unwrap()
}

/// Makes a chunk of a RIFF file.
fn riff_chunk(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let padding: &[u8] = if content.len() % 2 == 1 { &[0] } else { &[] };
    [kind.as_slice(), &(content.len() as u32).to_le_bytes(), content, padding].concat()
}

/// Makes a WebP of chunks: the canvas with these flags first.
fn extended_webp(flags: u8, width: u32, height: u32, chunks: &[Vec<u8>]) -> Vec<u8> {
    let side = |pixels: u32| (pixels - 1).to_le_bytes()[..3].to_vec();
    let canvas = riff_chunk(b"VP8X", &[vec![flags, 0, 0, 0], side(width), side(height)].concat());
    riff_chunk(b"RIFF", &[b"WEBP".to_vec(), canvas, chunks.concat()].concat())
}

/// Returns the picture of a simple WebP, as a chunk.
fn webp_bitstream(webp: &[u8]) -> Vec<u8> {
    webp[12..].to_vec()
}

#[test]
fn chunk_that_unpacks_to_much_takes_bounded_memory() {
    let (tiny, bomb) = (png(&noise(1, 1)), zeros(200));
    let profile = png_chunk(b"iCCP", &[b"p\0\0", bomb.as_slice()].concat());
    let text = png_chunk(b"zTXt", &[b"Raw profile type iptc\0\0", bomb.as_slice()].concat());
    let words = png_chunk(b"iTXt", &[b"XML:com.adobe.xmp\0\x01\0\0\0", bomb.as_slice()].concat());
    for chunks in [vec![profile.clone()], vec![text.clone()], vec![words.clone()], vec![words, profile, text]] {
        let hostile = with_chunks(&tiny, &chunks);
        let (read, most) = measured(&hostile);
        assert!(read == Ok(hostile));
        assert!(most < 4 * METADATA_BYTES_MAX, "{most} bytes");
    }
}

#[test]
fn largest_pictures_take_bounded_memory() {
    let mut largest = Vec::new();
    // A picture with 16 bits for each channel, to be rotated by its camera orientation.
    let turned = png_chunk(b"eXIf", b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0");
    let mut deep = claiming(&png(&noise(1, 1)), 4_096, 4_096);
    deep.truncate(33);
    (deep[24], deep[25]) = (16, 6);
    let crc = crc(&deep[12..29]).to_be_bytes();
    deep[29..33].copy_from_slice(&crc);
    deep.extend([turned, png_chunk(b"IDAT", &zeros(129)), png_chunk(b"IEND", &[])].concat());
    largest.push(deep);
    // An animation with a picture as large as its canvas, rotated as well.
    let frame = webp_bitstream(&webp(&RgbImage::new(4_096, 4_096)));
    let place = [&[0; 6][..], &[255, 15, 0, 255, 15, 0], &[0; 4]].concat();
    let moving = [
        riff_chunk(b"ANIM", &[0; 6]),
        riff_chunk(b"ANMF", &[place, frame].concat()),
        riff_chunk(b"EXIF", b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"),
    ];
    let moving = extended_webp(0x1a, 4_096, 4_096, &moving);
    largest.push(moving);
    // A progressive JPEG, whose passes are all in memory.
    let mut steps = jpeg(&RgbImage::new(4_096, 4_096));
    let at = |steps: &[u8], marker: u8| steps.windows(2).position(|pair| pair == [0xff, marker]).unwrap();
    let (frame, scan) = (at(&steps, 0xc0), at(&steps, 0xda));
    steps[frame + 1] = 0xc2;
    let components = usize::from(steps[scan + 4]);
    steps[scan + 6 + 2 * components] = 0;
    largest.push(steps);
    for hostile in largest {
        assert!(hostile.len() <= IMAGE_BYTES_MAX);
        let (read, most) = measured(&hostile);
        // The JPEG's scan is invalid, which the decoder detects when everything is in memory.
        assert!(read.is_ok() || read == Err(NOT_WHOLE) && hostile.starts_with(&[0xff, 0xd8]));
        assert!(most < DECODING_BYTES_MAX, "{most} bytes");
    }
}

#[test]
fn webp_chunk_that_claims_more_than_is_there_is_refused() {
    let small = webp_bitstream(&webp(&noise(4, 4)));
    let mut exif = riff_chunk(b"EXIF", b"II*\0");
    let whole = extended_webp(8, 4, 4, &[small.clone(), exif.clone()]);
    assert!(picture(&base64(&whole)).is_ok());
    exif[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let claims = extended_webp(8, 4, 4, &[small, exif]);
    let before = memory("VmPeak");
    assert_eq!(picture(&base64(&claims)), Err(NOT_WHOLE));
    // No memory is allocated for it, either.
    assert!(memory("VmPeak") - before < 1 << 30);
}

// Holds: c5.images
#[test]
fn too_many_bytes_are_refused() {
    assert_eq!(picture(&"A".repeat(4 << 20)), Err(TOO_LARGE));
    let mut padded = png(&noise(2, 2));
    padded.resize(IMAGE_BYTES_MAX + 1, 0);
    assert_eq!(picture(&base64(&padded)), Err(TOO_LARGE));
    padded.truncate(IMAGE_BYTES_MAX);
    assert!(picture(&base64(&padded)).is_ok());
}

proptest::proptest! {
    #[test]
    fn rubbish_after_a_good_beginning_never_panics(
        format in 0..3_usize,
        at in 0.0..1.0_f64,
        rubbish in proptest::collection::vec(proptest::num::u8::ANY, 1..64),
    ) {
        let small = noise(12, 12);
        let mut bytes = vec![png(&small), jpeg(&small), webp(&small)].swap_remove(format);
        let start = (at * (bytes.len() - 1) as f64) as usize;
        for (byte, rubbish) in bytes[start..].iter_mut().zip(rubbish) {
            *byte = rubbish;
        }
        let _ = picture(&base64(&bytes));
    }
}
