------------------------------ MODULE Effects ------------------------------
(***************************************************************************)
(* What moves do outside the control records: rules that deny writes (the  *)
(* fence), calls of redirectors, offsets of groups.  No broker fences such *)
(* an EFFECT: a process that was stopped right before it may have it after *)
(* any number of later moves.  Move.tla shows that the routes are right;   *)
(* here they are one variable, and the question is what processes leave    *)
(* beside them when all have come to rest.                                 *)
(*                                                                         *)
(* After each effect a process reads the routes again, and does what       *)
(* follows from them then (bring_about in engine/moves/attempt.py).                 *)
(*                                                                         *)
(* One topic with a fence, one group, one redirector.  Moves alternate: 1  *)
(* leads from P to B, 2 back, 3 to B again.  Each operator runs one step   *)
(* of a move at a time, and may stop between any two of its actions.       *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Operators,      \* processes that run steps of moves, also of the same move at once
    LastMove,       \* bound: moves
    MaxGeneration,  \* bound: attempts of all moves
    Kinds,          \* of "fence", "call", "offset": the effects that moves have
    Deaths,         \* bound: processes that are killed right after a rule, or at a call
    Off             \* guards that are switched off, to see what breaks without them

Clusters == {"P", "B"}
Moves == 1..LastMove
Target(m) == IF m % 2 = 1 THEN "B" ELSE "P"
Source(m) == IF m % 2 = 1 THEN "P" ELSE "B"
On(guard) == guard \notin Off

VARIABLES
    route,      \* the route in force: generation, move, and hold, release or go
    progress,   \* by move: its newest attempt, and what its clients were told last
    rule,       \* by cluster: whether its brokers deny writes to the topic
    fence,      \* by cluster: the record of the rule: who has set it, and whether it stands
    called,     \* the order that the redirector has obeyed last
    notes,      \* by attempt and step: what is noted of its call
    offset,     \* by cluster: the attempt that has written the group's offset
    ledger,     \* by cluster: the newest entry: offset intended, and the one before it
    op,         \* operators: where each is, and what it remembers
    dead        \* processes that were killed

vars == <<route, progress, rule, fence, called, notes, offset, ledger, op, dead>>
records == <<route, progress>>
fences == <<rule, fence>>
calls == <<called, notes>>
groups == <<offset, ledger>>

(* InForce.read: what a move tells its clients, and the later move, if any:*)
(* not one whose release left them on the target of this one.              *)
InForce(m) ==
    LET later == /\ route.move # m /\ route.generation >= progress[m].generation
                 /\ ~(route.step = "release" /\ Source(route.move) = Target(m))
    IN  [generation |-> progress[m].generation, step |-> progress[m].step,
         later |-> IF later THEN route.move ELSE 0]
Leads(view) == view.step \in {"hold", "go"} /\ view.later = 0

Nothing == [generation |-> 0, step |-> "", later |-> 0]
Idle == [at |-> "idle", move |-> 0, generation |-> 0, todo |-> <<>>, view |-> Nothing,
         denied |-> FALSE, lifted |-> FALSE, late |-> FALSE, seen |-> 0]
At(o, place) == op[o].at = place
Goes(o, next) == op' = [op EXCEPT ![o] = next]

(* Where an operator begins with a task.                                   *)
Place(task) ==
    CASE task = "fence" -> "fence: look"
      [] task = "call" -> "call: look"
      [] task = "apply" -> "apply: look"
      [] task \in {"lift source", "lift target"} -> "lift: look"
      [] OTHER -> task
Begin(o, todo) ==
    IF todo = <<>> THEN Idle
    ELSE [Idle EXCEPT !.move = op[o].move, !.generation = op[o].generation, !.todo = todo,
                      !.at = Place(Head(todo))]
Finish(o) == Goes(o, Begin(o, Tail(op[o].todo)))

-----------------------------------------------------------------------------
(* STEPS.  Holding, deciding and releasing are one action each: Move.tla   *)
(* has what is in them.                                                    *)

Active == IF route.step = "go" THEN Target(route.move) ELSE Source(route.move)

Start(o, m, todo) ==
    Goes(o, [Idle EXCEPT !.move = m, !.generation = progress[m].generation, !.todo = todo,
                         !.at = Place(Head(todo))])

Holds(o, m) ==
    /\ At(o, "idle")
    /\ m = IF route.step = "go" THEN route.move + 1 ELSE route.move
    /\ route.step # "hold" /\ route.generation < MaxGeneration
    /\ LET held == [generation |-> route.generation + 1, move |-> m, step |-> "hold"]
       IN  /\ route' = held
           /\ progress' = [progress EXCEPT ![m] = [generation |-> held.generation, step |-> "hold"]]
           /\ Goes(o, IF "call" \notin Kinds THEN Idle
                      ELSE [Idle EXCEPT !.move = m, !.generation = held.generation,
                                        !.todo = <<"call">>, !.at = "call: look"])
    /\ UNCHANGED <<fences, calls, groups, dead>>

(* The steps that can be run now; a release that is refused fences again,  *)
(* and verify calls again.                                                 *)
AfterRelease == IF On("fence after release") THEN "fence" ELSE "lift source"
Programs(m) ==
    LET now == progress[m].step
    IN  CASE now = "hold" ->
               {<<"fence">>, <<"apply">>, <<"call">>,
                <<"gate", "lift target", "decide", "look again", "lift target", "call">>,
                <<"lift source", "release", AfterRelease, "call">>}
          [] now = "release" -> {<<"lift source", "release", AfterRelease, "call">>}
          [] now = "go" -> {<<"fence">>, <<"call">>}
          [] OTHER -> {}
Kind(task) ==
    CASE task \in {"fence", "lift source", "lift target"} -> "fence"
      [] task = "call" -> "call"
      [] task = "apply" -> "offset"
      [] OTHER -> ""
Starts(o, m) ==
    /\ At(o, "idle")
    /\ \E program \in Programs(m) :
         LET Matters(task) == Kind(task) \in Kinds \cup {""}
             todo == SelectSeq(program, Matters)
         IN  todo # <<>> /\ Start(o, m, todo)
    /\ UNCHANGED <<records, fences, calls, groups, dead>>

Held(o) == route = [generation |-> op[o].generation, move |-> op[o].move, step |-> "hold"]

(* The gate is open: nobody can write to the source, the offset is there.  *)
Gate(o) ==
    /\ At(o, "gate")
    /\ LET m == op[o].move
       IN  IF /\ Held(o)
              /\ "fence" \in Kinds => rule[Source(m)]
              /\ "offset" \in Kinds => offset[Target(m)] = op[o].generation
           THEN Finish(o) ELSE Goes(o, Idle)
    /\ UNCHANGED <<records, fences, calls, groups, dead>>

Ends(o, step) ==
    /\ route' = [route EXCEPT !.step = step]
    /\ progress' = [progress EXCEPT ![op[o].move].step = step]

Decides(o) ==
    /\ At(o, "decide")
    /\ IF Held(o) THEN Ends(o, "go") /\ Finish(o)
       ELSE /\ UNCHANGED records
            /\ IF progress[op[o].move].step = "go" THEN Finish(o) ELSE Goes(o, Idle)
    /\ UNCHANGED <<fences, calls, groups, dead>>

LooksAgain(o) ==
    /\ At(o, "look again")
    /\ IF InForce(op[o].move).later # 0 THEN Goes(o, Idle) ELSE Finish(o)
    /\ UNCHANGED <<records, fences, calls, groups, dead>>

Releases(o) ==
    /\ At(o, "release")
    /\ LET m == op[o].move
       IN  CASE progress[m].step = "hold" /\ route.move = m -> Ends(o, "release") /\ Finish(o)
             [] progress[m].step = "go" ->
                  UNCHANGED records /\ Goes(o, IF "fence" \in Kinds THEN Begin(o, <<"fence">>) ELSE Idle)
             [] OTHER -> UNCHANGED records /\ Finish(o)
    /\ UNCHANGED <<fences, calls, groups, dead>>

-----------------------------------------------------------------------------
(* FENCE: set_fence and _fence.  The record is written as a control record *)
(* of the source, with what is in force read in the same transaction; the  *)
(* rule follows, as late as it likes.                                      *)

SetRule(c, denied) == rule' = [rule EXCEPT ![c] = denied]
SetFence(c, record) == fence' = [fence EXCEPT ![c] = record]

(* A later move may have counted on the rule that is lifted here.          *)
FencesForLater(o, m) == IF On("fence of the later") THEN Start(o, m, <<"fence">>) ELSE Finish(o)

FenceLooks(o) ==
    /\ At(o, "fence: look")
    /\ Goes(o, [op[o] EXCEPT !.view = InForce(op[o].move), !.at = "fence: rules"])
    /\ UNCHANGED <<records, fences, calls, groups, dead>>

(* What is denied without a record is the rule of others.  What the move   *)
(* does not lead any more is lifted, also where its record says so already *)
FenceReadsRules(o) ==
    /\ At(o, "fence: rules")
    /\ Goes(o, [op[o] EXCEPT !.denied = rule[Source(op[o].move)], !.lifted = FALSE,
                             !.at = IF Leads(op[o].view) THEN "fence: record" ELSE "lift: look"])
    /\ UNCHANGED <<records, fences, calls, groups, dead>>

FenceRecords(o) ==
    /\ At(o, "fence: record")
    /\ LET m == op[o].move
           c == Source(m)
           new == /\ ~fence[c].stands /\ ~op[o].denied
                  /\ Leads(InForce(m))
           ours == new \/ fence[c].stands
       IN  /\ IF new THEN SetFence(c, [move |-> m, stands |-> TRUE]) ELSE UNCHANGED fence
           /\ Goes(o, [op[o] EXCEPT !.at = IF ours /\ ~op[o].denied THEN "fence: deny" ELSE "fence: again"])
    /\ UNCHANGED <<records, rule, calls, groups, dead>>

FenceDenies(o) ==
    /\ At(o, "fence: deny")
    /\ SetRule(Source(op[o].move), TRUE)
    /\ Goes(o, [op[o] EXCEPT !.at = "fence: again"])
    /\ UNCHANGED <<records, fence, calls, groups, dead>>

FenceLooksAgain(o) ==
    /\ At(o, "fence: again")
    /\ LET now == InForce(op[o].move)
       IN  CASE now # op[o].view /\ On("fence again") ->
                  Goes(o, [op[o] EXCEPT !.view = now, !.at = "fence: rules"])
             [] now = op[o].view /\ now.later # 0 -> FencesForLater(o, now.later)
             [] OTHER -> Finish(o)
    /\ UNCHANGED <<records, fences, calls, groups, dead>>

-----------------------------------------------------------------------------
(* LIFT: lift_fence, of the source by a release or by a fence that came    *)
(* too late, of the target by go.  Repeated until there is nothing left.   *)

Task(o) == Head(op[o].todo)
LiftsOn(o) == IF Task(o) = "lift target" THEN Target(op[o].move) ELSE Source(op[o].move)

(* A rule is looked for where the record stands; where it does not, by     *)
(* whoever has just lifted it, by a late fence, and by go.                 *)
ToLift(o) ==
    LET c == LiftsOn(o)
        ours == \/ Task(o) = "lift target"
                \/ fence[c].move = op[o].move
        searched == op[o].lifted \/ Task(o) = "fence" \/ (Task(o) = "lift target" /\ On("lifted lately"))
    IN  fence[c].move # 0 /\ ours /\ (fence[c].stands \/ (searched /\ rule[c]))

LiftLooks(o) ==
    /\ At(o, "lift: look")
    /\ CASE ToLift(o) -> Goes(o, [op[o] EXCEPT !.at = "lift: allow"])
         [] ~ToLift(o) /\ Task(o) = "fence" -> Goes(o, [op[o] EXCEPT !.at = "fence: again"])
         [] ~ToLift(o) /\ Task(o) = "lift target" /\ InForce(op[o].move).later # 0 ->
              FencesForLater(o, InForce(op[o].move).later)
         [] OTHER -> Finish(o)
    /\ UNCHANGED <<records, fences, calls, groups, dead>>

LiftAllows(o) ==
    /\ At(o, "lift: allow")
    /\ SetRule(LiftsOn(o), FALSE)
    /\ Goes(o, [op[o] EXCEPT !.at = "lift: record"])
    /\ UNCHANGED <<records, fence, calls, groups, dead>>

LiftRecords(o) ==
    /\ At(o, "lift: record")
    /\ SetFence(LiftsOn(o), [fence[LiftsOn(o)] EXCEPT !.stands = FALSE])
    /\ Goes(o, [op[o] EXCEPT !.lifted = TRUE, !.at = "lift: look"])
    /\ UNCHANGED <<records, rule, calls, groups, dead>>

-----------------------------------------------------------------------------
(* CALL: call_redirectors and call_while_in_force.  A call is noted before *)
(* it is made, and its answer after it: a process that is killed between   *)
(* leaves "calling", and its call may have come at any time, or not at all.*)

Key(m) == <<progress[m].generation, progress[m].step>>
Note(key, state) == notes' = [notes EXCEPT ![key] = state]
InForceYet(o) == <<op[o].view.generation, op[o].view.step>> = Key(op[o].move)

(* Only what is not confirmed is called.                                   *)
CallLooks(o) ==
    /\ At(o, "call: look")
    /\ LET m == op[o].move
       IN  IF progress[m].step = "" \/ notes[Key(m)] \in {"done", "superseded"} THEN Finish(o)
           ELSE Goes(o, [op[o] EXCEPT !.late = notes[Key(m)] = "calling", !.at = "call: read"])
    /\ UNCHANGED <<records, fences, calls, groups, dead>>

(* A later move repeats its call after one that may have come later,       *)
(* confirmed or not; a call that it has not noted yet comes later anyway.  *)
CallsForLater(o, m) ==
    /\ IF On("call of the later") /\ notes[Key(m)] # ""
       THEN Goes(o, [Idle EXCEPT !.move = m, !.todo = <<"call">>, !.late = TRUE, !.at = "call: read"])
       ELSE Finish(o)
    /\ UNCHANGED notes

Follows(o, now) ==
    CASE now.later = 0 \/ ~On("superseded") ->
           UNCHANGED notes /\ Goes(o, [op[o] EXCEPT !.view = now, !.at = "call: note"])
      [] op[o].late -> CallsForLater(o, now.later)
      [] OTHER -> Note(Key(op[o].move), "superseded") /\ Finish(o)

CallReads(o) ==
    /\ At(o, "call: read")
    /\ Follows(o, InForce(op[o].move))
    /\ UNCHANGED <<records, fences, called, groups, dead>>

CallNotes(o) ==
    /\ At(o, "call: note")
    /\ IF InForceYet(o)
       THEN Note(Key(op[o].move), "calling") /\ Goes(o, [op[o] EXCEPT !.late = TRUE, !.at = "call: tell"])
       ELSE UNCHANGED notes /\ Goes(o, [op[o] EXCEPT !.late = TRUE, !.at = "call: again"])
    /\ UNCHANGED <<records, fences, called, groups, dead>>

(* The redirector ignores an order lower than one that it has obeyed.      *)
Order(call) == 3 * call.generation + (CASE call.step = "hold" -> 0 [] call.step = "release" -> 1 [] OTHER -> 2)
Calls(o) ==
    /\ At(o, "call: tell")
    /\ LET call == [generation |-> op[o].view.generation, move |-> op[o].move, step |-> op[o].view.step]
       IN  called' = IF On("order") /\ Order(call) < Order(called) THEN called ELSE call
    /\ Goes(o, [op[o] EXCEPT !.at = "call: answer"])
    /\ UNCHANGED <<records, fences, notes, groups, dead>>

CallAnswers(o) ==
    /\ At(o, "call: answer")
    /\ IF InForceYet(o) THEN Note(Key(op[o].move), "done") ELSE UNCHANGED notes
    /\ Goes(o, [op[o] EXCEPT !.at = "call: again"])
    /\ UNCHANGED <<records, fences, called, groups, dead>>

(* A call that ended after a later move is made again by that one.         *)
CallLooksAgain(o) ==
    /\ At(o, "call: again")
    /\ LET now == InForce(op[o].move)
       IN  IF now = op[o].view \/ ~On("call again") THEN UNCHANGED notes /\ Finish(o) ELSE Follows(o, now)
    /\ UNCHANGED <<records, fences, called, groups, dead>>

-----------------------------------------------------------------------------
(* APPLY: apply_positions and engine/groups/group_sync.py.  What is about to be   *)
(* written is in the ledger first, so that it is known as srm's own: the   *)
(* next sync or move replaces it.                                          *)

ApplyLooks(o) ==
    /\ At(o, "apply: look")
    /\ LET now == InForce(op[o].move)
       IN  IF Leads(now) /\ now.generation = op[o].generation
           THEN Goes(o, [op[o] EXCEPT !.view = now, !.at = "apply: ledger"]) ELSE Finish(o)
    /\ UNCHANGED <<records, fences, calls, groups, dead>>

WriteLedger(o, before) ==
    LET t == Target(op[o].move)
    IN  ledger' = IF On("ledger") THEN [ledger EXCEPT ![t] = [intended |-> op[o].generation, before |-> before]]
                  ELSE ledger

ApplyNotes(o) ==
    /\ At(o, "apply: ledger")
    /\ LET now == offset[Target(op[o].move)]
       IN  IF now = op[o].generation
           THEN UNCHANGED ledger /\ Goes(o, [op[o] EXCEPT !.at = "apply: again"])
           ELSE WriteLedger(o, now) /\ Goes(o, [op[o] EXCEPT !.seen = now, !.at = "apply: write"])
    /\ UNCHANGED <<records, fences, calls, offset, dead>>

ApplyWrites(o) ==
    /\ At(o, "apply: write")
    /\ offset' = [offset EXCEPT ![Target(op[o].move)] = op[o].generation]
    /\ Goes(o, [op[o] EXCEPT !.at = "apply: settle"])
    /\ UNCHANGED <<records, fences, calls, ledger, dead>>

ApplySettles(o) ==
    /\ At(o, "apply: settle")
    /\ IF On("settled") THEN WriteLedger(o, op[o].seen) ELSE UNCHANGED ledger
    /\ Goes(o, [op[o] EXCEPT !.at = "apply: again"])
    /\ UNCHANGED <<records, fences, calls, offset, dead>>

ApplyLooksAgain(o) ==
    /\ At(o, "apply: again")
    /\ LET now == InForce(op[o].move)
       IN  IF now # op[o].view /\ Leads(now) /\ now.generation = op[o].generation
           THEN Goes(o, [op[o] EXCEPT !.view = now, !.at = "apply: ledger"]) ELSE Finish(o)
    /\ UNCHANGED <<records, fences, calls, groups, dead>>

-----------------------------------------------------------------------------
(* Killed right after a rule, which its step does not look for again: the  *)
(* move may have ended long ago.  Or killed before, in or after a call.    *)
Dies(o) ==
    /\ op[o].at \in {"fence: again", "call: tell", "call: answer", "call: again"} /\ dead < Deaths
    /\ Goes(o, Idle) /\ dead' = dead + 1
    /\ UNCHANGED <<records, fences, calls, groups>>

Init ==
    /\ route = [generation |-> 0, move |-> 0, step |-> "go"]
    /\ progress = [m \in Moves |-> [generation |-> 0, step |-> ""]]
    /\ rule = [c \in Clusters |-> FALSE]
    /\ fence = [c \in Clusters |-> [move |-> 0, stands |-> FALSE]]
    /\ called = route
    /\ notes = [key \in (1..MaxGeneration) \X {"hold", "release", "go"} |-> ""]
    /\ offset = [c \in Clusters |-> 0]
    /\ ledger = [c \in Clusters |-> [intended |-> 0, before |-> 0]]
    /\ op = [o \in Operators |-> Idle]
    /\ dead = 0

Next == \E o \in Operators :
    \/ \E m \in Moves : Holds(o, m) \/ Starts(o, m)
    \/ Gate(o) \/ Decides(o) \/ LooksAgain(o) \/ Releases(o)
    \/ FenceLooks(o) \/ FenceReadsRules(o) \/ FenceRecords(o) \/ FenceDenies(o) \/ FenceLooksAgain(o)
    \/ LiftLooks(o) \/ LiftAllows(o) \/ LiftRecords(o)
    \/ CallLooks(o) \/ CallReads(o) \/ CallNotes(o) \/ Calls(o) \/ CallAnswers(o) \/ CallLooksAgain(o)
    \/ ApplyLooks(o) \/ ApplyNotes(o) \/ ApplyWrites(o) \/ ApplySettles(o) \/ ApplyLooksAgain(o)
    \/ Dies(o)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Operators)

-----------------------------------------------------------------------------
(* WHAT MUST HOLD when all processes have come to rest.                    *)

AtRest == \A o \in Operators : At(o, "idle")

(* Nobody is denied to write where clients are sent.                       *)
ActiveSideIsOpen == AtRest /\ route.step # "hold" => ~rule[Active]

(* Nobody can write where clients have left.                               *)
OldSideIsClosed == "fence" \in Kinds /\ AtRest /\ route.step = "go" /\ route.move > 0 => rule[Source(route.move)]

(* The redirector has obeyed last what is in force, once that is confirmed:*)
(* until then each run of a step calls it again.  The go of a move and the *)
(* release of the move back send clients to the same cluster.              *)
Sends(call) ==
    [held |-> IF call.step = "hold" THEN call.generation ELSE 0,
     cluster |-> IF call.step = "go" THEN Target(call.move) ELSE Source(call.move)]
Confirmed == route.generation > 0 => notes[<<route.generation, route.step>>] = "done"
RedirectorAgrees ==
    "call" \in Kinds /\ AtRest /\ (dead = 0 \/ Confirmed) => Sends(called) = Sends(route)

(* The group's offset is that of the move in force, or known as srm's own. *)
OffsetIsOurs ==
    "offset" \in Kinds /\ AtRest /\ route.step = "go" /\ route.move > 0 =>
        LET t == Target(route.move)
        IN  offset[t] \in {route.generation, ledger[t].intended, ledger[t].before}
=============================================================================
