import { type Design, type LinkPlace, elementsOf } from './model';
import type { Path } from './json-text';

/** What a fault is about. */
export interface FaultPlace {
  element?: string;
  property?: string;
  link?: LinkPlace;
  argument?: string;
  /** The same in the JSON. */
  path: Path;
}

const ELEMENTS = 'planes.cloud.elements';
/** Names are cut there in what the server says. */
const NAME_CHARS_MAX = 128;

/** Finds what a field of the server's faults is about. Names may have points in them: the longest one that fits is meant. */
export function placeOf(design: Design, field: string): FaultPlace {
  if (!field.startsWith(`${ELEMENTS}.`)) return { path: field === '' ? [] : field.split('.') };
  const rest = field.slice(ELEMENTS.length + 1);
  const path = ELEMENTS.split('.');
  const fitting = Object.keys(elementsOf(design)).filter((name) => {
    const told = [...name].slice(0, NAME_CHARS_MAX).join('');
    return rest === told || rest.startsWith(`${told}.`);
  });
  const element = fitting.sort((left, right) => right.length - left.length)[0];
  if (element === undefined) return { path };
  const inside = rest.slice([...element].slice(0, NAME_CHARS_MAX).join('').length + 1);
  return { element, ...within(element, inside, [...path, element]) };
}

function within(element: string, inside: string, path: Path): FaultPlace {
  const [, part = '', rest = ''] = /^(properties|triggers)(?:\.(.*))?$/s.exec(inside) ?? [];
  if (part === 'properties') {
    const [property = '', ...deeper] = rest.split('.');
    return property === ''
      ? { path: [...path, part] }
      : { property, path: [...path, part, property, ...(deeper.length > 0 ? [deeper.join('.')] : [])] };
  }
  const [, trigger, index, member = ''] = /^(.*?)\[(\d+)\](?:\.(.*))?$/s.exec(rest) ?? [];
  if (part === 'triggers' && trigger !== undefined && index !== undefined) {
    const link = { element, trigger, index: Number(index) };
    const place = [...path, part, trigger, link.index];
    if (!member.startsWith('arguments.')) return { link, path: member ? [...place, member] : place };
    const argument = member.slice('arguments.'.length);
    return { link, argument, path: [...place, 'arguments', argument] };
  }
  if (part === 'triggers') return { path: rest ? [...path, part, rest] : [...path, part] };
  return { path: inside ? [...path, inside] : path };
}
