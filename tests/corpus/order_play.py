"""Plays orders of neutral forms with sets and no cleverness: knows nothing of the ordering room."""

import heapq


def peak_bytes(form, order=None):
    """Highest bytes of an order of op positions; list order if None."""
    nbytes = {s["id"]: s["nbytes"] for s in form["storages"]}
    kept = {s["id"] for s in form["storages"] if s.get("output") or s.get("resident")}
    ops = form["ops"]
    touched = [{*op["reads"], *op["writes"]} for op in ops]
    there = {s["id"] for s in form["storages"] if s.get("resident")}
    written = set()
    for op in ops:
        there |= set(op["reads"]) - written
        written |= set(op["writes"])
    there |= nbytes.keys() - written
    users = {s: sum(s in t for t in touched) for s in nbytes}
    there -= {s for s in there if not users[s]} - kept
    highest = sum(nbytes[s] for s in there)
    for i in range(len(ops)) if order is None else order:
        op = ops[i]
        there |= touched[i]
        for s in touched[i]:
            users[s] -= 1
        dead = {s for s in touched[i] if not users[s]} - kept
        shared = sum(min(nbytes[w], nbytes[r]) for w, r in op.get("in_place", ()) if r in dead)
        highest = max(highest, sum(nbytes[s] for s in there) + op.get("workspace", 0) - shared)
        there -= dead
    return highest


def operand_post_order(form):
    """Depth-first from the results back along operands, each op after its operands: HMCOS's reverse post-order."""
    makers = {s: i for i, op in enumerate(form["ops"]) for s in op["writes"]}
    order, done = [], set()
    stack = [(makers[s["id"]], False) for s in form["storages"] if s.get("output")][::-1]
    while stack:
        op, seen = stack.pop()
        if op in done:
            continue
        if seen:
            done.add(op)
            order.append(op)
            continue
        stack.append((op, True))
        stack += [(makers[s], False) for s in reversed(form["ops"][op]["reads"]) if s in makers]
    return order


def least_peak(form):
    """The best peak over all orders, by search over executed sets; for forms where each storage has one writer."""
    ops = form["ops"]
    makers = {s: i for i, op in enumerate(ops) for s in op["writes"]}
    names = {op["id"]: i for i, op in enumerate(ops)}
    needs = [
        {makers[s] for s in op["reads"] if s in makers} | {names[a] for a in op.get("after", ())}
        for op in ops
    ]
    users = {s["id"]: {i for i, op in enumerate(ops) if s["id"] in op["reads"]} for s in form["storages"]}

    def held(ran):
        return sum(
            s["nbytes"]
            for s in form["storages"]
            if (makers.get(s["id"]) in ran or s["id"] not in makers)
            and (s.get("output") or s.get("resident") or users[s["id"]] - ran)
        )

    sizes = {s["id"]: s["nbytes"] for s in form["storages"]}
    needed = [sum(sizes[s] for s in op["writes"]) + op.get("workspace", 0) for op in ops]
    assert not any(op.get("in_place") for op in ops)
    best = {frozenset(): 0}
    queue = [(0, 0, frozenset())]
    while queue:
        peak, _, ran = heapq.heappop(queue)
        if len(ran) == len(ops):
            return peak
        if peak > best[ran]:
            continue
        level = held(ran)
        for i in range(len(ops)):
            if i not in ran and needs[i] <= ran:
                reached, after = max(peak, level + needed[i]), ran | {i}
                if reached < best.get(after, reached + 1):
                    best[after] = reached
                    heapq.heappush(queue, (reached, len(best), after))
    raise AssertionError("the operations have a cycle")
