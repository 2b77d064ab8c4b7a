------------------------------- MODULE Today -------------------------------
(***************************************************************************)
(* The protocol of moves BEFORE control records were fenced, kept to show  *)
(* what the new one (Move.tla) mends.  Each step read the routes of both   *)
(* clusters, computed a record with the next generation, and wrote it to   *)
(* one cluster after the other; nothing shut out a process that had        *)
(* stalled in between, and a cluster's newest record replaced the last.    *)
(*                                                                         *)
(* One move from S to T, run by two operators that may stop anywhere.  TLC *)
(* finds a violation of each of the two invariants at the end.             *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS Operators, MaxGeneration

Source == "S"
Target == "T"
Clusters == {Source, Target}
NoRecord == [generation |-> 0, state |-> "go", to |-> Source]

VARIABLES
    route,      \* the newest routing record of each cluster
    progress,   \* step of the move (one place: both clusters had the same)
    op,         \* what each operator is doing: step, place in it, record to write
    reported    \* TRUE once a `go` has returned `gone`

vars == <<route, progress, op, reported>>

Idle == [at |-> "idle", record |-> NoRecord]

\* Precedence between two records: generation, then hold before go, then the alias.
Weight(r) == 4 * r.generation + (IF r.state = "hold" THEN 2 ELSE 0) + (IF r.to = Source THEN 1 ELSE 0)

\* What a client reads that starts now and sees both clusters.
Merged == IF Weight(route[Source]) >= Weight(route[Target]) THEN route[Source] ELSE route[Target]

HasGone == Merged.state = "go" /\ Merged.to = Target
IsOver == progress = "gone" \/ HasGone

Wanted(state, to) ==  \* the record of this change: the present one if it says so already
    IF Merged.state = state /\ Merged.to = to /\ Merged.generation > 0
    THEN Merged
    ELSE [generation |-> Merged.generation + 1, state |-> state, to |-> to]

\* When each step may begin; what it refuses leads nowhere.
HoldMay == ~IsOver
GoMay == IF HasGone THEN TRUE ELSE progress # "gone" /\ Merged.state = "hold"
ReleaseMay == ~IsOver /\ Merged.generation > 0

Goes(o, place) == op' = [op EXCEPT ![o].at = place]
Reads(o, place, record) ==
    /\ record.generation <= MaxGeneration
    /\ op' = [op EXCEPT ![o] = [at |-> place, record |-> record]]
    /\ UNCHANGED <<route, progress, reported>>
Writes(o, cluster, place) ==
    /\ route' = [route EXCEPT ![cluster] = op[o].record]
    /\ Goes(o, place)
    /\ UNCHANGED <<progress, reported>>
Ends(o, step) ==
    /\ progress' = step
    /\ op' = [op EXCEPT ![o] = Idle]
    /\ UNCHANGED route

Hold(o) ==
    \/ op[o].at = "idle" /\ HoldMay /\ Reads(o, "hold on S", Wanted("hold", Source))
    \/ op[o].at = "hold on S" /\ Writes(o, Source, "hold on T")
    \/ op[o].at = "hold on T" /\ Writes(o, Target, "held")
    \/ op[o].at = "held" /\ Ends(o, IF progress \in {"planned", "released"} THEN "held" ELSE progress)
                         /\ UNCHANGED reported

Go(o) ==
    \/ /\ op[o].at = "idle" /\ GoMay /\ Goes(o, "decided")
       /\ progress' = IF HasGone THEN progress ELSE "going"
       /\ UNCHANGED <<route, reported>>
    \/ op[o].at = "decided" /\ Reads(o, "go on T", Wanted("go", Target))
    \/ op[o].at = "go on T" /\ Writes(o, Target, "go on S")
    \/ op[o].at = "go on S" /\ Writes(o, Source, "went")
    \/ op[o].at = "went" /\ Ends(o, "gone") /\ reported' = TRUE

Release(o) ==
    \/ op[o].at = "idle" /\ ReleaseMay /\ Reads(o, "release on S", Wanted("go", Source))
    \/ op[o].at = "release on S" /\ Writes(o, Source, "release on T")
    \/ op[o].at = "release on T" /\ Writes(o, Target, "released")
    \/ op[o].at = "released" /\ Ends(o, "released") /\ UNCHANGED reported

Crash(o) == op' = [op EXCEPT ![o] = Idle] /\ UNCHANGED <<route, progress, reported>>

Init ==
    /\ route = [c \in Clusters |-> NoRecord]
    /\ progress = "planned"
    /\ op = [o \in Operators |-> Idle]
    /\ reported = FALSE

Next == \E o \in Operators : Hold(o) \/ Go(o) \/ Release(o) \/ Crash(o)
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Dead end 1, "the late hold".  While a client that starts now would be   *)
(* held, some step is allowed that changes this.  Violated: a hold that    *)
(* stalled before its writes lands after `gone`; hold, go and release then *)
(* all answer that the move is over.                                       *)
SomebodyCanEndTheHold ==
    Merged.state = "hold" => HoldMay \/ GoMay \/ ReleaseMay \/ \E o \in Operators : op[o].at # "idle"

(* Dead end 2, "the race to one generation".  Once a go has reported       *)
(* `gone`, with no other step at work, clients are sent to the target.     *)
(* Violated: release and go both write the generation after the hold's;    *)
(* the tie is broken by the alias, for the source.                         *)
GoneMeansTarget ==
    reported /\ progress = "gone" /\ (\A o \in Operators : op[o].at = "idle")
        /\ Merged.state = "go" => Merged.to = Target
=============================================================================
