import AlarmClock from '@lucide/svelte/icons/alarm-clock';
import Bell from '@lucide/svelte/icons/bell';
import CircleQuestionMark from '@lucide/svelte/icons/circle-question-mark';
import Cpu from '@lucide/svelte/icons/cpu';
import Database from '@lucide/svelte/icons/database';
import EqualNot from '@lucide/svelte/icons/equal-not';
import Globe from '@lucide/svelte/icons/globe';
import Hourglass from '@lucide/svelte/icons/hourglass';
import RadioTower from '@lucide/svelte/icons/radio-tower';
import Send from '@lucide/svelte/icons/send';
import Sigma from '@lucide/svelte/icons/sigma';
import Siren from '@lucide/svelte/icons/siren';
import SlidersHorizontal from '@lucide/svelte/icons/sliders-horizontal';
import Split from '@lucide/svelte/icons/split';
import SquareFunction from '@lucide/svelte/icons/square-function';
import Braces from '@lucide/svelte/icons/braces';
import type { Component } from 'svelte';
import type { ElementType } from '../../lib/design/elements';

type Icon = Component<{ size?: number }>;

const ICONS: Readonly<Record<ElementType, Icon>> = {
  deviceEvent: RadioTower,
  interval: AlarmClock,
  condition: Split,
  transform: SquareFunction,
  changed: EqualNot,
  function: Braces,
  window: Sigma,
  throttle: Hourglass,
  deviceSetting: SlidersHorizontal,
  deviceMeta: Cpu,
  storage: Database,
  cloudEvent: Send,
  notification: Bell,
  alarm: Siren,
  http: Globe,
};

/** The icon of a type of element; one for all types that are not known. */
export function iconOf(type: string): Icon {
  return Object.hasOwn(ICONS, type) ? ICONS[type as ElementType] : CircleQuestionMark;
}

/** What the sign of a type is called in the document. */
export function signOf(type: string): string {
  return `sign-${Object.hasOwn(ICONS, type) ? type : 'unknown'}`;
}
