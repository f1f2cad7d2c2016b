import type { Schemas } from '../../api/client';
import { type Design, type LinkPlace, linksOf } from './model';

export type TraceStep = Schemas['TraceStep'];

/** A step of a dry run, and the link by which its value came; none where the run began, or where the design has changed since. */
export interface Walk {
  step: TraceStep;
  link: LinkPlace | null;
  /** The step that passed the value on. */
  before: number | null;
  depth: number;
}

/**
 * Finds the links along which the values of a dry run flowed. The trace tells elements in the order in which they were used; links
 * are followed in the order in which they stand, each to its end before the next.
 */
export function follow(design: Design, steps: readonly TraceStep[]): Walk[] {
  const walks: Walk[] = [];
  const visit = (depth: number): void => {
    const at = walks.length - 1;
    const { step } = walks[at] as Walk;
    if (!step.produced) return;
    const { trigger } = step.produced;
    for (const [index, link] of linksOf(design, step.element, trigger).entries()) {
      const next = steps[walks.length];
      if (!next || next.element !== link.element || next.ability !== link.ability) return;
      walks.push({ step: next, link: { element: step.element, trigger, index }, before: at, depth: depth + 1 });
      visit(depth + 1);
    }
  };
  while (walks.length < steps.length) {
    const step = steps[walks.length] as TraceStep;
    walks.push({ step, link: null, before: null, depth: 0 });
    visit(0);
  }
  return walks;
}

/** A link as a text, for keys. */
export function keyOf({ element, trigger, index }: LinkPlace): string {
  return JSON.stringify([element, trigger, index]);
}
