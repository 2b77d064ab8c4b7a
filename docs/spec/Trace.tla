------------------------------- MODULE Trace -------------------------------
(***************************************************************************)
(* Are these records what the protocol may leave behind?  Each trace is    *)
(* what the logs of both clusters hold of one subject (its routes) and of  *)
(* its moves (their steps), in the order of each log.  TLC looks for a     *)
(* behaviour of Move.tla whose commits are these, in this order on each    *)
(* cluster; everything that is not in the logs (who, when, crashes, leases *)
(* and clients) is left to it.  tests/spec/replay.py makes Recorded.tla    *)
(* with the constants and says how far it came.                            *)
(***************************************************************************)
EXTENDS Move, Sequences

CONSTANTS
    Traces,         \* logs by cluster: routes [generation, rank, to, by, beat], steps
                    \* [generation, step, by]; generations, `planned` and `unplanned`
    SourceOf        \* by move: the cluster that it leaves

VARIABLES
    trace,          \* which one this behaviour explains
    matched         \* how many records of each log have been explained

RecordedSource(m) == SourceOf[m]
Planned == UNION {Traces[t].planned : t \in DOMAIN Traces}
RecordedGenerations(known) == {g \in Planned : g > known}

RouteOf(r) == [generation |-> r.generation, rank |-> r.rank, to |-> r.to, by |-> r.by, beat |-> r.beat]
StepOf(r) ==
    [generation |-> r.generation, by |-> r.by,
     step |-> CASE r.rank = Released -> "released"
                [] r.rank = Gone -> "gone"
                [] r.intent -> "going"
                [] OTHER -> "held"]

(* Move.tla has of an unplanned move the decision alone.  Recorded are its *)
(* hold, renewals and release, too, each one transaction on its target.    *)
Writes(c, record) ==
    /\ reg' = [reg EXCEPT ![c] = record]
    /\ owner' = [owner EXCEPT ![c] = ""]
    /\ op' = [p \in Operators |-> IF Needs(p) = c THEN StartsOver(p) ELSE op[p]]
    /\ UNCHANGED <<client, expired, outcome, trusted>>
UnplannedWrites ==
    \E m \in Moves, g \in Traces[trace].unplanned :
      LET c == Target(m)
          at == reg[c]
      IN  \/ /\ g > at.generation
             /\ Writes(c, [Home EXCEPT !.generation = g, !.rank = Hold, !.to = Source(m), !.by = m])
          \/ /\ OwnHold(at, m) /\ at.generation = g
             /\ \/ Writes(c, [at EXCEPT !.beat = @ + 1])
                \/ Writes(c, ReleaseRecord(at))
                \/ Writes(c, GoneRecord(at, m))

(* A commit that changes what a log shows has to be its next record.       *)
Follows(log, count, count2, before, after) ==
    IF before = after THEN count2 = count
    ELSE count < Len(log) /\ log[count + 1] = after /\ count2 = count + 1

Explained == matched["P"].routes + matched["P"].steps + matched["B"].routes + matched["B"].steps
Recorded(c) == Len(Traces[trace].routes[c]) + Len(Traces[trace].steps[c])

TraceInit ==
    /\ Init
    /\ trace \in DOMAIN Traces
    /\ matched = [c \in Clusters |-> [routes |-> 0, steps |-> 0]]
TraceNext ==
    /\ TLCGet(trace) < Recorded("P") + Recorded("B")
    /\ UnplannedWrites \/ \E o \in Operators : Step(o) \/ Crash(o)
    /\ matched' = [c \in Clusters |->
         [routes |-> IF RouteOf(reg[c]) = RouteOf(reg'[c]) THEN matched[c].routes ELSE matched[c].routes + 1,
          steps |-> IF StepOf(reg[c]) = StepOf(reg'[c]) THEN matched[c].steps ELSE matched[c].steps + 1]]
    /\ \A c \in Clusters :
         /\ Follows(Traces[trace].routes[c], matched[c].routes, matched'[c].routes, RouteOf(reg[c]), RouteOf(reg'[c]))
         /\ Follows(Traces[trace].steps[c], matched[c].steps, matched'[c].steps, StepOf(reg[c]), StepOf(reg'[c]))
    /\ UNCHANGED trace
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, trace, matched>>

(* Printed whenever more of a trace is explained than ever before (one     *)
(* worker); when all of it is, no more is looked for.                      *)
Progress ==
    IF Explained > TLCGet(trace)
    THEN /\ TLCSet(trace, Explained)
         /\ PrintT(<<"explained", trace, matched["P"].routes, matched["P"].steps,
                     matched["B"].routes, matched["B"].steps>>)
    ELSE TRUE
ASSUME \A t \in DOMAIN Traces : TLCSet(t, 0)
=============================================================================
