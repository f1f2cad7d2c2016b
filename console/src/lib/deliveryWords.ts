import { m } from '../paraglide/messages';
import { runFaultWords } from './design/runFaultWords';
import { number } from './format';

/** Why nothing came of a delivery, in the words of the console's language. */

type Said = [pattern: RegExp, words: (...parts: string[]) => string];

/** The first one that fits is taken. */
const SAID: readonly Said[] = [
  [
    /^event block (\d+): (.*)$/s,
    (index, fault) => m.delivery_block({ index: number(Number(index) + 1), fault: deliveryWords(fault) }),
  ],
  [/^eventsRef finds nothing in the body$/s, () => m.delivery_no_events()],
  [/^deviceTagValueRef finds nothing in it$/s, () => m.delivery_no_value()],
  [/^deviceTagValueRef finds an? (\S+), not a string or a number$/s, (kind) => m.delivery_bad_value({ kind })],
  [
    /^what deviceTagValueRef finds must be 1 to (\d+) characters long, without U\+0000$/s,
    (max) => m.delivery_long_value({ max: number(Number(max)) }),
  ],
  [/^idempotencyKeyRef finds an? (\S+), not a string or a number$/s, (kind) => m.delivery_bad_key({ kind })],
  [
    /^what idempotencyKeyRef finds must be at most (\d+) characters long$/s,
    (max) => m.delivery_long_key({ max: number(Number(max)) }),
  ],
  [/^several devices carry the tag in other cases, and none in this one$/s, () => m.delivery_ambiguous()],
  [/^the payload is null$/s, () => m.delivery_null()],
  [
    /^no device carries the tag, and neither projectUuid nor projectUuidMap names a project for it$/s,
    () => m.delivery_no_project(),
  ],
  [/^no device carries the tag, and the project for it does not exist$/s, () => m.delivery_project_gone()],
  [
    /^the design of the device's project has no deviceEvent element of the integration (\S+)$/s,
    (integration) => m.delivery_no_element({ integration }),
  ],
  [/^the device limit of the organization is reached: no device was provisioned$/s, () => m.delivery_limit()],
  [/^the device does not get its labels: .*$/s, () => m.delivery_labels()],
  [/^the device was deleted meanwhile$/s, () => m.delivery_deleted()],
  [/^the project's design has changed meanwhile$/s, () => m.delivery_changed()],
];

/** The words of what the server says of a delivery; what has none here may be of the run that it began. */
export function deliveryWords(message: string): string {
  for (const [pattern, words] of SAID) {
    const found = pattern.exec(message);
    if (found) return words(...found.slice(1));
  }
  return runFaultWords(message);
}
