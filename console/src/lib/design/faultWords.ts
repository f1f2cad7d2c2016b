import { m } from '../../paraglide/messages';
import { number } from '../format';

/** What is wrong with a design, in the words of the console's language. The server says it in English, to programs first. */

type Said = [pattern: RegExp, words: (...parts: string[]) => string];

const figure = (digits: string): string => number(Number(digits));

/** The first one that fits is taken. */
const SAID: readonly Said[] = [
  [/^is required$/s, () => m.design_fault_required()],
  [/^(?:is required, or minutes|stands in for size: give one of them)$/s, () => m.design_fault_one_of_two()],
  [
    /^must be a whole number(?: from|,) (\d+) to (\d+)$/s,
    (min, max) => m.design_fault_whole({ min: figure(min), max: figure(max) }),
  ],
  [/^must be one of (.*), or an expression$/s, (choices) => m.design_said_choice_or_expression({ choices })],
  [/^must be one of (.*)$/s, (choices) => m.design_fault_choice({ choices })],
  [/^a name has 1 to (\d+) characters$/s, (max) => m.design_fault_name({ max: figure(max) })],
  [/^no setting may be called '(.*)'$/s, (name) => m.design_fault_reserved({ name })],
  [/^closes a cycle back to '(.*)'$/s, (name) => m.design_fault_cycle({ name })],
  [/^must be an object$/s, () => m.design_said_object()],
  [/^must be an array of links$/s, () => m.design_said_links()],
  [/^must be an object, an array or null$/s, () => m.design_said_composite()],
  [/^must be a string$/s, () => m.fault_text()],
  [/^must be a boolean$/s, () => m.fault_toggle()],
  [/^must be a number$/s, () => m.design_said_any_number()],
  [/^must be a whole number$/s, () => m.design_said_any_whole()],
  [/^must be a positive number$/s, () => m.design_said_positive()],
  [/^must be a whole number, at most (\d+)$/s, (max) => m.design_said_whole_most({ max: figure(max) })],
  [/^must be at most (?:maximum|high)$/s, () => m.design_said_low_above_high()],
  [/^must be at most (\S+)$/s, (max) => m.fault_most({ max })],
  [/^must be at least (-?\d\S*)$/s, (min) => m.fault_least({ min })],
  [/^must be at least min$/s, () => m.design_said_max_below_min()],
  [/^must be \{latitude, longitude\}, within .*$/s, () => m.fault_place()],
  [/^must be a string, or an object of strings by locale$/s, () => m.design_said_words()],
  [/^must have at most (\d+) paths$/s, (max) => m.design_said_paths_max({ max: figure(max) })],
  [/^must have at most (\d+) words$/s, (max) => m.design_said_field_words_max({ max: figure(max) })],
  [/^must have 1 to (\d+) locales$/s, (max) => m.design_said_locales({ max: figure(max) })],
  [/^must be a string of 1 to (\d+) characters$/s, (max) => m.design_said_text({ max: figure(max) })],
  [/^must be an object of strings by value$/s, () => m.design_said_field_words()],
  [
    /^(?:a path has|its name must have) at most (\d+) characters$/s,
    (max) => m.design_said_chars_max({ max: figure(max) }),
  ],
  [/^must be a path as payload\.a\.b or .*, or payload itself$/s, () => m.design_said_field_path()],
  [/^names the same as '(.*)'$/s, (path) => m.design_said_field_twice({ path })],
  [/^unknown: title, unit, decimals, .*$/s, () => m.design_said_field_member()],
  [/^a cloud plane has at most (\d+) elements$/s, (max) => m.design_said_elements_max({ max: figure(max) })],
  [/^a cloud plane has at most (\d+) links$/s, (max) => m.design_said_links_max({ max: figure(max) })],
  [
    /^(?:cannot be compiled at present|the engine for code cannot be started at present|the functions of the design take too long to be checked)$/s,
    () => m.design_said_busy(),
  ],
  [/^unknown element type$/s, () => m.design_said_type()],
  [/^unknown trigger$/s, () => m.design_said_trigger()],
  [/^unknown element$/s, () => m.design_said_element()],
  [/^an? \S+ has no such ability$/s, () => m.design_said_ability()],
  [/^unknown argument$/s, () => m.design_said_argument()],
  [/^must be an expression, in a string$/s, () => m.design_said_one_expression()],
  [/^must be an object of expressions$/s, () => m.design_said_expressions()],
  [/^must be JavaScript, in a string$/s, () => m.design_said_javascript()],
  [/^(\S+) has no body$/s, (method) => m.design_said_no_body({ method })],
  [/^the url has white space in it$/s, () => m.design_said_url_space()],
  [/^the url must begin with http:\/\/ or https:\/\/$/s, () => m.design_said_url_start()],
  [/^the url is longer than (\d+) bytes$/s, (max) => m.design_said_url_long({ max: figure(max) })],
  [/^has at most (\d+) members$/s, (max) => m.design_said_members({ max: figure(max) })],
  [/^is no name of a header$/s, () => m.design_said_header_name()],
  [/^may not be set$/s, () => m.design_said_header_kept()],
  [/^is there twice$/s, () => m.design_said_header_twice()],
  [/^(?:has at most|is longer than) (\d+) bytes$/s, (max) => m.design_said_bytes_max({ max: figure(max) })],
  [/^has a character that a header cannot carry$/s, () => m.design_said_header_value()],
  [/^must be a text that is not empty$/s, () => m.design_said_not_empty()],
  [/^(?:has|an expression has) at most (\d+) characters$/s, (max) => m.design_said_chars_max({ max: figure(max) })],
  [/^has at most (\d+) expressions$/s, (max) => m.design_said_expressions_max({ max: figure(max) })],
  [/^an expression is not closed by '(.*)'$/s, (close) => m.design_said_unclosed_braces({ close })],
  [/^has 1 to (\d+) characters$/s, (max) => m.design_said_chars({ max: figure(max) })],
  [/^must be a JSONPath to one place: names and indexes, as in (.*)$/s, (example) => m.design_said_path({ example })],
  [/^has no function (.*)$/s, (name) => m.design_said_no_decoder({ name })],
  [/^takes longer than (\d+) ms$/s, (max) => m.design_said_code_slow({ max: figure(max) })],
  [/^takes more than (\d+) MiB of memory$/s, (max) => m.design_said_code_memory({ max: figure(max) })],
  [/^wants more memory at once$/s, () => m.design_said_code_memory_once()],
  [/^calls itself too deeply$/s, () => m.design_said_code_deep()],
  [/^was ended$/s, () => m.design_said_code_ended()],
  [/^gives what cannot be read$/s, () => m.design_said_code_unreadable()],
  [/^is no JavaScript$/s, () => m.design_said_code_none()],
  [
    /^has the character U\+0000 in line (\d+): write it as (.*)$/s,
    (line, sign) => m.design_said_code_null({ line: figure(line), sign }),
  ],
  [/^an expression is nested at most (\d+) deep$/s, (max) => m.design_said_deep({ max: figure(max) })],
  [/^an expression has at most (\d+) operations in a row$/s, (max) => m.design_said_row({ max: figure(max) })],
  [/^is no expression$/s, () => m.design_said_no_expression()],
  [/^unknown type '(.*)'$/s, (name) => m.design_said_cel_type({ name })],
  [/^this part of CEL is not available$/s, () => m.design_said_cel_part()],
  [/^unknown variable '(.*)'$/s, (name) => m.design_said_variable({ name })],
  [/^(?:unknown member '(.*)' of (event|device))$/s, (name, whose) => m.design_said_member({ name, whose })],
  [/^unknown setting '(.*)'$/s, (name) => m.design_said_setting({ name })],
  [/^unknown storage '(.*)'$/s, (name) => m.design_said_storage({ name })],
  [/^has\(\) takes a member, as in (.*)$/s, (example) => m.design_said_has({ example })],
  [/^a macro's first argument is the name of its variable$/s, () => m.design_said_macro()],
  [/^the pattern of matches\(\) must be a constant text$/s, () => m.design_said_pattern()],
  [/^the pattern of matches\(\) is no regular expression$/s, () => m.design_said_regex()],
  [/^the pattern of matches\(\) is too large$/s, () => m.design_said_regex_large()],
  [/^the patterns of the design are too large together$/s, () => m.design_said_regexes_large()],
  [/^an integer has at most 64 bits, with its sign$/s, () => m.design_said_integer()],
  [/^bytes are not available: JSON has none$/s, () => m.design_said_no_bytes()],
  [/^unknown function '(.*)'$/s, (name) => m.design_said_function({ name })],
  [/^'(.*)' takes no argument: times are in UTC$/s, (name) => m.design_said_utc({ name })],
  [
    /^'(.*)' does not take (\d+) argument\(s\)$/s,
    (name, count) => m.design_said_arguments({ name, count: figure(count) }),
  ],
  [
    /^(?:mismatched|extraneous|no viable alternative at) input '[^']*<EOF>'.* \(line (\d+), column (\d+)\)$/s,
    (line, column) => m.design_said_end({ line: figure(line), column: figure(column) }),
  ],
  [
    /^reserved identifier: (\S+) \(line (\d+), column (\d+)\)$/s,
    (name, line, column) => m.design_said_reserved({ name, line: figure(line), column: figure(column) }),
  ],
  [
    /^.* \(line (\d+), column (\d+)\)$/s,
    (line, column) => m.design_said_syntax({ line: figure(line), column: figure(column) }),
  ],
];

/** Where code stands, which fails in words of its own. */
const IN_CODE = /\.properties\.code$/;

/** The words of a fault that the server has found. What has none here is handed on as it is told: the faults of code are its language's. */
export function designFaultWords({ field, message }: { field: string; message: string }): string {
  const words = knownWords(message);
  if (words !== undefined) return words;
  if (!IN_CODE.test(field)) return m.fault_other({ reason: message });
  return m.design_said_code({ reason: message.replace(/^does not run: /, '') });
}

/** The words of a message of the compiler that has some. */
export function knownWords(message: string): string | undefined {
  for (const [pattern, words] of SAID) {
    const found = pattern.exec(message);
    if (found) return words(...found.slice(1));
  }
  return undefined;
}
