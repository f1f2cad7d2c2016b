import { m } from '../../paraglide/messages';
import { number } from '../format';
import { knownWords } from './faultWords';

/** What has failed in a run of a design, in the words of the console's language. */

type Said = [pattern: RegExp, words: (...parts: string[]) => string];

const figure = (digits: string): string => number(Number(digits));
/** What is wrong with a value is said as it is of a design. */
const words = (fault: string): string => knownWords(fault) ?? fault;

/** The first one that fits is taken. */
const SAID: readonly Said[] = [
  [/^a byte is no whole number from 0 to 255$/s, () => m.design_run_byte()],
  [/^an? (\S+) has no abilities$/s, (type) => m.design_run_start({ type })],
  [/^a duration is written like '(.*)' or '(.*)'$/s, (one, other) => m.design_run_duration({ one, other })],
  [/^a key is a text of at most (\d+) bytes, without U\+0000$/s, (max) => m.design_run_alarm_key({ max: figure(max) })],
  [/^a key is a text, a number or a boolean$/s, () => m.design_run_alarm_key_kind()],
  [/^a list has no index of type (\S+)$/s, (kind) => m.design_run_index_kind({ kind })],
  [/^a map has no key of type (\S+)$/s, (kind) => m.design_run_key_kind({ kind })],
  [/^a map has the same key twice$/s, () => m.design_run_key_twice()],
  [/^a run changes settings at most (\d+) times$/s, (max) => m.design_run_settings_max({ max: figure(max) })],
  [/^a run sends at most (\d+) notifications and calls$/s, (max) => m.design_run_sends_max({ max: figure(max) })],
  [/^a run stores and sends at most (\d+) MiB$/s, (max) => m.design_run_stores_max({ max: figure(max) })],
  [/^a status is none, good, info, warning, critical, missing, or its number 0 to 5$/s, () => m.design_run_status()],
  [/^a substring ends before it begins$/s, () => m.design_run_substring()],
  [/^a tag must be a text of 1 to (\d+) characters$/s, (max) => m.design_run_tag({ max: figure(max) })],
  [/^a text is longer than (\d+) bytes$/s, (max) => m.design_run_text_max({ max: figure(max) })],
  [/^a value of type (\S+) has no items$/s, (kind) => m.design_run_no_items({ kind })],
  [/^a window keeps no value larger than (\d+) bytes$/s, (max) => m.design_run_window_max({ max: figure(max) })],
  [/^an alarm keeps no value larger than (\d+) KiB$/s, (max) => m.design_run_alarm_value({ max: figure(max) })],
  [/^at most (\d+) alarms of an element are active$/s, (max) => m.design_run_alarms_max({ max: figure(max) })],
  [
    /^cannot list the alarm: at most (\d+) alarms of a device are listed as active$/s,
    (max) => m.design_run_alarms_listed_max({ max: figure(max) }),
  ],
  [/^cannot look for '(.*)' in a value of type (\S+)$/s, (key, kind) => m.design_run_look_in({ key, kind })],
  [/^cannot take '(.*)' of a value of type (\S+)$/s, (key, kind) => m.design_run_take_of({ key, kind })],
  [/^division by zero$/s, () => m.design_run_zero()],
  [/^expected a bool, got a value of type (\S+)$/s, (kind) => m.design_run_bool({ kind })],
  [/^expected a number, got a value of type (\S+)$/s, (kind) => m.design_run_number({ kind })],
  [/^has no code$/s, () => m.design_run_no_code()],
  [/^index (\S+) is out of range$/s, (index) => m.design_run_index({ index })],
  [/^integer overflow$/s, () => m.design_run_overflow()],
  [/^is no constant$/s, () => m.design_run_constant()],
  [/^latitude and longitude must be numbers$/s, () => m.design_run_coordinates()],
  [/^no such key '?(.*?)'?$/s, (key) => m.design_run_no_key_named({ key })],
  [/^no such key$/s, () => m.design_run_no_key()],
  [/^no such overload: (.*)$/s, (call) => m.design_run_overload({ call })],
  [
    /^settings, labels, notifications and calls of a run take at most (\d+) MiB$/s,
    (max) => m.design_run_changes_max({ max: figure(max) }),
  ],
  [/^the body is longer than (\d+) bytes$/s, (max) => m.design_run_body_max({ max: figure(max) })],
  [/^the bytes are a value of type (\S+), not a list or a text$/s, (kind) => m.design_run_bytes_kind({ kind })],
  [/^the duration is out of range$/s, () => m.design_run_duration_range()],
  [/^the expressions of this run take too long$/s, () => m.design_run_expressions_slow()],
  [/^the fPort is no whole number from 0 to 255$/s, () => m.design_run_port()],
  [/^the functions of this run take too long$/s, () => m.design_run_functions_slow()],
  [/^the header '(.*)' (.*)$/s, (name, fault) => m.design_run_header({ name, fault: words(fault) })],
  [/^the latitude or the longitude is out of its bounds$/s, () => m.design_run_place()],
  [/^the list is empty$/s, () => m.design_run_list_empty()],
  [/^the metadata of a device holds .*$/s, () => m.design_run_meta_max()],
  [/^the method must be one of (.*)$/s, (choices) => m.design_run_method({ choices })],
  [/^the result is (\S+), which JSON cannot write$/s, (value) => m.design_run_infinite({ value })],
  [/^the run takes more than (\d+) steps$/s, (max) => m.design_run_steps_max({ max: figure(max) })],
  [/^the text is neither true nor false$/s, () => m.design_run_text_bool()],
  [/^the text is no RFC 3339 time$/s, () => m.design_run_text_time()],
  [/^the text is no number$/s, () => m.design_run_text_number()],
  [/^the timestamp is out of range$/s, () => m.design_run_time_range()],
  [/^the value is larger than (\d+) bytes$/s, (max) => m.design_run_value_max({ max: figure(max) })],
  [/^the value is nested deeper than (\d+)$/s, (max) => m.design_run_value_deep({ max: figure(max) })],
  [/^the value is no integer, or out of range$/s, () => m.design_run_value_integer()],
  [/^the value (.*)$/s, (fault) => m.design_run_value({ fault: words(fault) })],
  [/^there are more than (\d+) bytes$/s, (max) => m.design_run_bytes_max({ max: figure(max) })],
  [/^there are no bytes at (.*)$/s, (path) => m.design_run_no_bytes_at({ path })],
  [/^there are no bytes: the value has neither 'bytes' nor 'data'$/s, () => m.design_run_no_bytes()],
  [/^two keys of a map are written '(.*)'$/s, (key) => m.design_run_keys_alike({ key })],
  [/^unknown setting$/s, () => m.design_run_setting()],
  [
    /^what the elements of a device remember takes at most (\d+) KiB$/s,
    (max) => m.design_run_memory_max({ max: figure(max) }),
  ],
  [/^the bytes are no Base64; for hexadecimal, bytesEncoding is 'hex'$/s, () => m.design_run_base64()],
  [/^the bytes are not hexadecimal, digits in pairs, as bytesEncoding says$/s, () => m.design_run_hex()],
  [/^is not run for a while: it took far more than its time before$/s, () => m.design_run_aside()],
];

/** The words of an error of a run. What code throws is in words of its own, and stays. */
export function runFaultWords(message: string): string {
  for (const [pattern, said] of SAID) {
    const found = pattern.exec(message);
    if (found) return said(...found.slice(1));
  }
  return knownWords(message) ?? message;
}
