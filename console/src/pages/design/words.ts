import type { CheckFault } from '../../lib/design/check';
import type { ElementType, Family } from '../../lib/design/elements';
import type { TemplateName } from '../../lib/design/templates';
import type { JsonFault } from '../../lib/design/json-text';
import { number } from '../../lib/format';
import { m } from '../../paraglide/messages';

/** What the console says of a fault that it sees by itself. */
export function checkWords({ code, values }: CheckFault): string {
  const { name = '' } = values;
  const [min, max] = [number(values.min ?? 0), number(values.max ?? 0)];
  switch (code) {
    case 'required':
      return m.design_fault_required();
    case 'number':
      return m.design_fault_number({ max });
    case 'whole':
      return m.design_fault_whole({ min, max });
    case 'choice':
      return m.design_fault_choice({ choices: name });
    case 'text':
      return m.design_fault_text();
    case 'one-of-two':
      return m.design_fault_one_of_two();
    case 'name':
      return m.design_fault_name({ max });
    case 'reserved':
      return m.design_fault_reserved({ name });
    case 'unknown-type':
      return m.design_fault_unknown_type({ name });
    case 'unknown-trigger':
      return m.design_fault_unknown_trigger({ name });
    case 'unknown-element':
      return m.design_fault_unknown_element({ name });
    case 'unknown-ability':
      return m.design_fault_unknown_ability({ name });
    case 'unknown-argument':
      return m.design_fault_unknown_argument({ name });
    case 'cycle':
      return m.design_fault_cycle({ name });
    case 'empty':
      return m.design_fault_empty();
    case 'unclosed-text':
      return m.design_fault_unclosed_text();
    case 'unclosed':
      return m.design_fault_unclosed();
    case 'unopened':
      return m.design_fault_unopened();
    case 'character':
      return m.design_fault_character();
  }
}

/** What is wrong with JSON that is being typed. */
export function jsonWords({ code, found }: JsonFault): string {
  switch (code) {
    case 'unexpected':
      return m.design_json_unexpected({ found });
    case 'end':
      return m.design_json_end();
    case 'duplicate':
      return m.design_json_duplicate({ found });
    case 'number':
      return m.design_json_number({ found });
    case 'text':
      return m.design_json_text();
    case 'deep':
      return m.design_json_deep();
  }
}

export function familyWord(family: Family): string {
  switch (family) {
    case 'source':
      return m.design_family_source();
    case 'logic':
      return m.design_family_logic();
    case 'device':
      return m.design_family_device();
    case 'result':
      return m.design_family_result();
  }
}

const TYPE_WORDS: Readonly<Record<ElementType, { name: () => string; about: () => string }>> = {
  deviceEvent: { name: m.design_type_device_event, about: m.design_about_device_event },
  interval: { name: m.design_type_interval, about: m.design_about_interval },
  condition: { name: m.design_type_condition, about: m.design_about_condition },
  transform: { name: m.design_type_transform, about: m.design_about_transform },
  changed: { name: m.design_type_changed, about: m.design_about_changed },
  function: { name: m.design_type_function, about: m.design_about_function },
  window: { name: m.design_type_window, about: m.design_about_window },
  throttle: { name: m.design_type_throttle, about: m.design_about_throttle },
  deviceSetting: { name: m.design_type_device_setting, about: m.design_about_device_setting },
  deviceMeta: { name: m.design_type_device_meta, about: m.design_about_device_meta },
  storage: { name: m.design_type_storage, about: m.design_about_storage },
  cloudEvent: { name: m.design_type_cloud_event, about: m.design_about_cloud_event },
  notification: { name: m.design_type_notification, about: m.design_about_notification },
  alarm: { name: m.design_type_alarm, about: m.design_about_alarm },
  http: { name: m.design_type_http, about: m.design_about_http },
};

/** What a type of element is called; one that is not known by its own name. */
export function typeWord(type: string): string {
  return Object.hasOwn(TYPE_WORDS, type) ? TYPE_WORDS[type as ElementType].name() : type;
}

/** What an element of a type does, in a sentence. */
export function typeAbout(type: string): string {
  return Object.hasOwn(TYPE_WORDS, type) ? TYPE_WORDS[type as ElementType].about() : '';
}

const PROPERTY_WORDS: Readonly<Record<string, { name: () => string; hint?: () => string }>> = {
  integration: { name: m.design_prop_integration, hint: m.design_hint_integration },
  minutes: { name: m.design_prop_minutes },
  expression: { name: m.design_prop_expression, hint: m.design_hint_expression },
  code: { name: m.design_prop_code, hint: m.design_hint_code },
  bytesRef: { name: m.design_prop_bytes_ref, hint: m.design_hint_bytes_ref },
  bytesEncoding: { name: m.design_prop_bytes_encoding },
  fPortRef: { name: m.design_prop_f_port_ref, hint: m.design_hint_f_port_ref },
  aggregate: { name: m.design_prop_aggregate },
  size: { name: m.design_prop_size, hint: m.design_hint_size },
  title: { name: m.design_prop_title },
  description: { name: m.design_prop_description },
  inputType: { name: m.design_prop_input_type },
  inputTypeProperties: { name: m.design_prop_bounds },
  defaultValue: { name: m.design_prop_default },
  listOrder: { name: m.design_prop_list_order, hint: m.design_hint_list_order },
  missingAfterMinutes: { name: m.design_prop_missing_after, hint: m.design_hint_missing_after },
  retentionDays: { name: m.design_prop_retention_days, hint: m.design_hint_retention },
  valuesMax: { name: m.design_prop_values_max },
  fields: { name: m.design_prop_fields, hint: m.design_hint_fields },
  ttlMinutes: { name: m.design_prop_ttl, hint: m.design_hint_ttl },
  message: { name: m.design_prop_message, hint: () => m.design_hint_message({ open: '{{', close: '}}' }) },
  severity: { name: m.design_prop_severity },
  minimumRole: { name: m.design_prop_minimum_role },
  method: { name: m.design_prop_method },
  url: { name: m.design_prop_url, hint: m.design_hint_url },
  headers: { name: m.design_prop_headers, hint: m.design_hint_headers },
  body: { name: m.design_prop_body, hint: m.design_hint_body },
};

export function propertyWord(name: string): string {
  return PROPERTY_WORDS[name]?.name() ?? name;
}

export function propertyHint(name: string): string | undefined {
  return PROPERTY_WORDS[name]?.hint?.();
}

export function templateWords(name: TemplateName): { title: string; text: string } {
  switch (name) {
    case 'empty':
      return { title: m.template_empty(), text: m.template_empty_text() };
    case 'sensor':
      return { title: m.template_sensor(), text: m.template_sensor_text() };
    case 'coldRoom':
      return { title: m.template_cold_room(), text: m.template_cold_room_text() };
    case 'meter':
      return { title: m.template_meter(), text: m.template_meter_text() };
  }
}
