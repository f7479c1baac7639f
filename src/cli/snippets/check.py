rebuilds = [at for at, stamp in enumerate(stamps) if stamp["commit"].startswith("rebuild:")]
stamps = stamps[max(rebuilds, default=0):]

# The cutover: generation and step of the newest reload; none where the log was cleaned up beyond it.
reloads = [(stamp["generation"], stamp["to"]) for stamp in stamps if stamp["kind"] == "reload"]
cutover = max(reloads, default=None)
print("cutover:", cutover)

# Continuity: commits that do not start where the one before ended, in steps or in digests.
broken = []
for before, stamp in zip(stamps, stamps[1:]):
    if stamp["kind"] == "reload":
        continue
    goes_on = (stamp["generation"], stamp["from"]) == (before["generation"], before["to"])
    if "digest_total" in before and "digest_total" in stamp:
        total = (int(before["digest_total"], 16) + int(stamp["digest"], 16)) % 2**128
        goes_on = goes_on and int(stamp["digest_total"], 16) == total
    if not goes_on:
        broken.append(stamp)
print("continuous" if not broken else f"not continuous: {broken}")
