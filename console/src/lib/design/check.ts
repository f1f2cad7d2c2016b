import { type CelFaultCode, celFault, messageParts } from './cel';
import { METHODS, type Property, shapeOf } from './elements';
import { type Design, type Element, allLinks, elementOf, elementsOf, leadsTo } from './model';

/** What the console sees by itself while one types. The server sees more, and decides; its paths are these. */
export type CheckCode =
  | 'required'
  | 'number'
  | 'whole'
  | 'choice'
  | 'text'
  | 'one-of-two'
  | 'name'
  | 'reserved'
  | 'unknown-type'
  | 'unknown-trigger'
  | 'unknown-element'
  | 'unknown-ability'
  | 'unknown-argument'
  | 'cycle'
  | CelFaultCode;

export interface CheckFault {
  field: string;
  code: CheckCode;
  /** What stands in the sentence. */
  values: { min?: number; max?: number; name?: string };
}

const NAME_CHARS_MAX = 128;

export function check(design: Design): CheckFault[] {
  const faults: CheckFault[] = [];
  const add = (field: string, code: CheckCode, values: CheckFault['values'] = {}): void => {
    faults.push({ field, code, values });
  };
  if (design.name.trim() === '') add('name', 'required');
  for (const [name, element] of Object.entries(elementsOf(design))) {
    const path = `planes.cloud.elements.${name}`;
    const length = [...name].length;
    if (length < 1 || length > NAME_CHARS_MAX) add(path, 'name', { max: NAME_CHARS_MAX });
    if (element.type === 'deviceSetting' && name === 'history') add(path, 'reserved', { name });
    const shape = shapeOf(element.type);
    if (!shape) add(`${path}.type`, 'unknown-type', { name: element.type });
    else checkProperties(element, shape.properties, `${path}.properties`, add);
    for (const trigger of Object.keys(element.triggers ?? {})) {
      if (shape && !shape.triggers.includes(trigger))
        add(`${path}.triggers.${trigger}`, 'unknown-trigger', { name: trigger });
    }
  }
  checkLinks(design, add);
  return faults;
}

type Add = (field: string, code: CheckCode, values?: CheckFault['values']) => void;

function checkLinks(design: Design, add: Add): void {
  for (const { element, trigger, index, link } of allLinks(design)) {
    const path = `planes.cloud.elements.${element}.triggers.${trigger}[${index}]`;
    const target = elementOf(design, link.element);
    if (!target) {
      add(`${path}.element`, 'unknown-element', { name: link.element });
      continue;
    }
    if (leadsTo(design, link.element, element)) add(`${path}.element`, 'cycle', { name: link.element });
    const ability = shapeOf(target.type)?.abilities.find(({ name }) => name === link.ability);
    if (!ability) {
      if (shapeOf(target.type)) add(`${path}.ability`, 'unknown-ability', { name: link.ability });
      continue;
    }
    for (const [name, value] of Object.entries(link.arguments ?? {})) {
      if (!ability.arguments.includes(name)) add(`${path}.arguments.${name}`, 'unknown-argument', { name });
      else if (typeof value === 'string') checkExpression(value, `${path}.arguments.${name}`, add);
    }
  }
}

function checkExpression(text: string, field: string, add: Add): void {
  const fault = celFault(text);
  if (fault) add(field, fault.code);
}

function checkProperties(element: Element, properties: readonly Property[], path: string, add: Add): void {
  for (const property of properties) {
    const value = element.properties?.[property.name];
    const field = `${path}.${property.name}`;
    if (value === undefined || value === null) {
      if (property.isRequired) add(field, 'required');
    } else checkValue(value, property, field, add);
  }
  if (element.type === 'window') {
    const { size, minutes } = element.properties ?? {};
    const [hasSize, hasMinutes] = [size, minutes].map((span) => span !== null && span !== undefined);
    if (hasSize === hasMinutes) add(`${path}.${hasSize ? 'minutes' : 'size'}`, 'one-of-two');
  }
}

function checkValue(value: unknown, property: Property, field: string, add: Add): void {
  const { kind, min, max, choices } = property;
  if (kind === 'whole' || kind === 'positive') {
    const isNumber = typeof value === 'number' && (kind === 'positive' ? value > 0 : Number.isInteger(value));
    const fits = isNumber && value >= (min ?? -Infinity) && value <= (max ?? Infinity);
    if (!fits) add(field, kind === 'whole' ? 'whole' : 'number', { min: min ?? 0, max: max ?? 0 });
  } else if (kind === 'choice') {
    if (!choices?.includes(value as string)) add(field, 'choice', { name: choices?.join(', ') ?? '' });
  } else if (kind === 'expression') {
    if (typeof value === 'string') checkExpression(value, field, add);
    else add(field, 'text');
  } else if (kind === 'message') {
    if (typeof value !== 'string' || value.trim() === '') return add(field, 'required');
    for (const part of messageParts(value)) {
      if (part.isExpression) checkExpression(value.slice(part.from, part.to), field, add);
    }
  } else if (kind === 'code') {
    if (typeof value !== 'string' || value.trim() === '') add(field, 'required');
  } else if (kind === 'address') {
    if (typeof value !== 'string') add(field, 'text');
    else if (!/^https?:\/\//i.test(value)) checkExpression(value, field, add);
  } else if (kind === 'method') {
    if (typeof value === 'string' && !METHODS.includes(value.toUpperCase())) checkExpression(value, field, add);
  } else if (kind === 'body' && typeof value === 'string') checkExpression(value, field, add);
}
