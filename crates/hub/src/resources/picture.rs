//! Reads a posted image (contract: Resources). Every byte may be hostile: the size is checked before the image is
//! decoded, memory is bounded, and images that the decoder cannot read are refused.

use std::io::Cursor;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::{CompressionType, FilterType, PngDecoder, PngEncoder};
use image::codecs::webp::WebPDecoder;
use image::error::LimitErrorKind;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, Limits};
use isobar_model::access::Caller;
use isobar_model::error::{self, Error};

use crate::support::bounded_jobs::BoundedJobs;
use isobar_quota::limits;

/// Largest accepted image, in bytes.
const IMAGE_BYTES_MAX: usize = 2 << 20;
/// Longest side, in pixels.
const SIDE_PIXELS_MAX: u32 = 4_096;
/// Memory for the metadata of a PNG, in bytes: texts as they are, and the unpacked colour profile. A larger profile is
/// skipped.
const METADATA_BYTES_MAX: u64 = 8 << 20;
/// Largest PNG that is stored for display, in bytes. A picture that exceeds it as PNG is halved until it fits.
const SHOWN_BYTES_MAX: usize = 4 << 20;
/// Name of the thread that decodes images.
const PICTURES_THREAD: &str = "isobar-pictures";

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads images one after the other.
pub(crate) struct Pictures(BoundedJobs);

impl Pictures {
    /// Starts the decoding thread.
    ///
    /// # Errors
    /// Returns an error if the system gives no more threads.
    pub(crate) fn new() -> error::Result<Self> {
        BoundedJobs::giving_way(PICTURES_THREAD, &limits::PICTURES).map(Self)
    }

    /// Returns a posted text with its picture as PNG.
    pub(crate) async fn read(&self, caller: &Caller, posted: String) -> error::Result<(String, Vec<u8>)> {
        let read = move || {
            // A panic of the decoder means that the image is damaged.
            let png = std::panic::catch_unwind(|| picture(&posted)).unwrap_or(Err(NOT_WHOLE));
            png.map(|png| (posted, png))
        };
        self.0.run_for(caller, read).await?.map_err(|fault| Error::invalid("body", fault))
    }
}

type PictureFault = &'static str;

const NOT_BASE64: PictureFault = "must be an image in Base64, bare or as a data URI: data:image/png;base64,…";
const NOT_AN_IMAGE: PictureFault = "must be a PNG, a JPEG or a WebP";
const LYING: PictureFault = "is not of the type that its data URI names";
const NOT_WHOLE: PictureFault = "is damaged or not whole";
const TOO_LARGE: PictureFault = "must be at most 2 MiB, decoded from Base64";
const TOO_WIDE: PictureFault = "must be at most 4096 by 4096 pixels";
const TOO_HEAVY: PictureFault = "takes too much memory to decode";

/// Returns the picture in a posted text as PNG: a PNG unchanged, other formats converted.
fn picture(posted: &str) -> Result<Vec<u8>, PictureFault> {
    let (claimed, base64) = split(posted)?;
    let bytes = decoded(base64)?;
    let format = match image::guess_format(&bytes) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::WebP)) => format,
        _ => return Err(NOT_AN_IMAGE),
    };
    if claimed.is_some_and(|claimed| claimed != format) {
        return Err(LYING);
    }
    match format {
        ImageFormat::Jpeg => as_png(upright(JpegDecoder::new(Cursor::new(&bytes)).map_err(fault)?)?),
        ImageFormat::WebP if !is_whole_riff(&bytes) => Err(NOT_WHOLE),
        ImageFormat::WebP => as_png(upright(WebPDecoder::new(Cursor::new(&bytes)).map_err(fault)?)?),
        _ => {
            // The PNG decoder limits the memory for unpacked metadata only by these bounds.
            let metadata = bounds(Some(METADATA_BYTES_MAX));
            pixels(PngDecoder::with_limits(Cursor::new(&bytes), metadata).map_err(fault)?)?;
            Ok(bytes)
        }
    }
}

/// Splits a data URI into its type and its Base64 text.
fn split(posted: &str) -> Result<(Option<ImageFormat>, &str), PictureFault> {
    let posted = posted.trim_ascii();
    let uri = posted.split_at_checked(5).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("data:"));
    let Some((_, rest)) = uri else { return Ok((None, posted)) };
    let (head, base64) = rest.split_once(',').ok_or(NOT_BASE64)?;
    let (kind, encoding) = head.rsplit_once(';').ok_or(NOT_BASE64)?;
    if !encoding.trim_ascii().eq_ignore_ascii_case("base64") {
        return Err(NOT_BASE64);
    }
    let kind = kind.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    let claimed = match kind.as_str() {
        "image/png" => ImageFormat::Png,
        "image/jpeg" | "image/jpg" => ImageFormat::Jpeg,
        "image/webp" => ImageFormat::WebP,
        _ => return Err(NOT_AN_IMAGE),
    };
    Ok((Some(claimed), base64))
}

/// Decodes a Base64 text, which may contain line breaks.
fn decoded(base64: &str) -> Result<Vec<u8>, PictureFault> {
    let mut base64 = base64.as_bytes().to_vec();
    base64.retain(|byte| !byte.is_ascii_whitespace());
    if base64.len() / 4 * 3 > IMAGE_BYTES_MAX + 3 {
        return Err(TOO_LARGE);
    }
    let bytes = BASE64.decode(&base64).map_err(|_| NOT_BASE64)?;
    if bytes.len() > IMAGE_BYTES_MAX { Err(TOO_LARGE) } else { Ok(bytes) }
}

/// Returns true if the chunks of a RIFF file lie within it: the decoder allocates as much memory as a chunk claims.
fn is_whole_riff(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(12..).unwrap_or_default();
    while let Some((head, content)) = rest.split_at_checked(8) {
        let size = head[4..].iter().rev().fold(0, |size, byte| size << 8 | usize::from(*byte));
        if size > content.len() {
            return false;
        }
        // A chunk of odd size is followed by a padding byte, which is often missing at the end.
        rest = content.get(size.next_multiple_of(2)..).unwrap_or_default();
    }
    true
}

/// Makes the limits on a picture's sides, and on other memory of its decoder.
fn bounds(max_alloc: Option<u64>) -> Limits {
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE_PIXELS_MAX);
    limits.max_image_height = Some(SIDE_PIXELS_MAX);
    limits.max_alloc = max_alloc;
    limits
}

/// Decodes an image whose size is within limits; of an animated one the first picture.
fn pixels(mut decoder: impl ImageDecoder) -> Result<DynamicImage, PictureFault> {
    decoder.set_limits(bounds(None)).map_err(fault)?;
    DynamicImage::from_decoder(decoder).map_err(fault)
}

/// Decodes an image as [`pixels`] does, and rotates it by its camera orientation.
fn upright(mut decoder: impl ImageDecoder) -> Result<DynamicImage, PictureFault> {
    let orientation = decoder.orientation().map_err(fault)?;
    let mut picture = pixels(decoder)?;
    picture.apply_orientation(orientation);
    Ok(picture)
}

fn fault(error: ImageError) -> PictureFault {
    match error {
        ImageError::Limits(limit) if limit.kind() == LimitErrorKind::DimensionError => TOO_WIDE,
        ImageError::Limits(_) => TOO_HEAVY,
        _ => NOT_WHOLE,
    }
}

/// Encodes a picture as PNG, halved until it is small enough to be stored.
fn as_png(mut picture: DynamicImage) -> Result<Vec<u8>, PictureFault> {
    loop {
        let mut png = Vec::new();
        let encoder = PngEncoder::new_with_quality(&mut png, CompressionType::Default, FilterType::Adaptive);
        picture.write_with_encoder(encoder).map_err(fault)?;
        if png.len() <= SHOWN_BYTES_MAX {
            return Ok(png);
        }
        picture = picture.thumbnail((picture.width() / 2).max(1), (picture.height() / 2).max(1));
    }
}

#[cfg(test)]
mod tests;
