------------------------------- MODULE Trace -------------------------------
(***************************************************************************)
(* Are these records what the protocol may leave behind?  Given is what    *)
(* the logs of both clusters hold of one subject (its routes) and of its   *)
(* moves (their steps), in the order of each log.  TLC looks for a         *)
(* behaviour of Move.tla whose commits are these, in this order on each    *)
(* cluster; everything that is not in the logs (who, when, crashes, leases *)
(* and clients) is left to it.  tests/spec/replay.py makes Recorded.tla    *)
(* with the constants and says how far it came.                            *)
(***************************************************************************)
EXTENDS Move, Sequences

CONSTANTS
    RouteLog,       \* by cluster: [generation, rank, to, by, beat] in the order of the log
    StepLog,        \* by cluster: [generation, step, by]
    SourceOf        \* by move: the cluster that it leaves

VARIABLE matched    \* how many records of each log have been explained

RecordedSource(m) == SourceOf[m]
RecordedGenerations(known) ==
    {g \in UNION {{RouteLog[c][n].generation : n \in DOMAIN RouteLog[c]} : c \in Clusters} : g > known}

RouteOf(r) == [generation |-> r.generation, rank |-> r.rank, to |-> r.to, by |-> r.by, beat |-> r.beat]
StepOf(r) ==
    [generation |-> r.generation, by |-> r.by,
     step |-> CASE r.rank = Released -> "released"
                [] r.rank = Gone -> "gone"
                [] r.intent -> "going"
                [] OTHER -> "held"]

(* A commit that changes what a log shows has to be its next record.       *)
Follows(log, count, count2, before, after) ==
    IF before = after THEN count2 = count
    ELSE count < Len(log) /\ log[count + 1] = after /\ count2 = count + 1

TraceInit == Init /\ matched = [c \in Clusters |-> [routes |-> 0, steps |-> 0]]
TraceNext ==
    /\ \E o \in Operators : Step(o) \/ Crash(o)
    /\ matched' = [c \in Clusters |->
         [routes |-> IF RouteOf(reg[c]) = RouteOf(reg'[c]) THEN matched[c].routes ELSE matched[c].routes + 1,
          steps |-> IF StepOf(reg[c]) = StepOf(reg'[c]) THEN matched[c].steps ELSE matched[c].steps + 1]]
    /\ \A c \in Clusters :
         /\ Follows(RouteLog[c], matched[c].routes, matched'[c].routes, RouteOf(reg[c]), RouteOf(reg'[c]))
         /\ Follows(StepLog[c], matched[c].steps, matched'[c].steps, StepOf(reg[c]), StepOf(reg'[c]))
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, matched>>

Explained ==
    LET p == matched["P"]  b == matched["B"]
    IN  p.routes + p.steps + b.routes + b.steps
(* Printed whenever more is explained than ever before (one worker).       *)
Progress ==
    IF Explained > TLCGet(1)
    THEN TLCSet(1, Explained) /\ PrintT(<<"explained", matched>>)
    ELSE TRUE
ASSUME TLCSet(1, 0)

(* "Violated" means: all records are explained.                            *)
NotAllExplained ==
    ~ \A c \in Clusters : matched[c] = [routes |-> Len(RouteLog[c]), steps |-> Len(StepLog[c])]
=============================================================================
