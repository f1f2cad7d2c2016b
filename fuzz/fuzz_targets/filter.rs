#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    isobar_http::fuzz::filter(input);
});
