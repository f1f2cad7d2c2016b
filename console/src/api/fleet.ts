import { type FleetSummary, api, done } from './client';

/** The devices of an organization and of those beneath it, counted. @throws Failure */
export function fleetSummary(organizationId: string, signal: AbortSignal): Promise<FleetSummary> {
  return done(api.GET('/v2/devices/summary', { params: { query: { organizationId, depth: 'all' } }, signal }));
}
