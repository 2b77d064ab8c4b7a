------------------------------- MODULE Return -------------------------------
(***************************************************************************)
(* A source is given up, returns, and what only it holds is decided about: *)
(* the pause of the flow P->B, the seal of its copy, slots that claim, the *)
(* decision about the residue, the way back, and a second disaster.        *)
(* docs/failover.md and docs/recover.md are the description.               *)
(*                                                                         *)
(* One partition.  Slots, the move, whoever settles, and whoever fails     *)
(* back may stop between any two actions; each action is one request.  P   *)
(* away is an action on P that is not taken.  Routes are one variable:     *)
(* Move.tla has what is in them.                                           *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Slots,          \* processes that copy, one of them assigned at a time
    Choices,        \* of "merge", "leave": what is decided (keep and discard copy alike)
    MaxRecords,     \* bound: records that are ever written to P
    MaxDisasters,   \* bound: unplanned moves from P to B
    MaxCuts,        \* bound: losses of the end of P's log
    MaxClaims,      \* bound: claims of slots
    Off             \* guards that are switched off, to see what breaks without them

On(guard) == guard \notin Off

VARIABLES
    source,     \* P's log: records with a number and a leader epoch
    epoch,      \* the leader epoch of P
    written,    \* how many records were ever written to P
    cuts,       \* how often P's log has lost its end
    copy,       \* B's log: numbers of the records copied
    owner,      \* the last claim on the copy: of a slot, or a seal
    sealed,     \* history: length of the copy when it was sealed, 0 and more; -1: not sealed
    state,      \* B's state topic: the pause (0 none, else its request), the moves that rely on
                \* it, and the slot that is assigned
    notes,      \* decisions: range, leader epoch, and (history) what they were about, and after
                \* how many losses of P's end
    slot,       \* slots
    claims,     \* claims that slots have taken
    route,      \* where clients are: "P", "B", or "P by force": by an unplanned move from B
    gaveUp,     \* what an unplanned move has done that is not decided: "paused", "sealed"
    disasters,  \* how many of them were begun
    back,       \* whether a planned move back has found its gate open
    settler,    \* whoever settles
    trusted     \* history: nobody has acted on a pause that was another by then

vars == <<source, epoch, written, cuts, copy, owner, sealed, state, notes, slot, claims, route,
          gaveUp, disasters, back, settler, trusted>>
logP == <<source, epoch, written, cuts>>
logB == <<copy, owner, sealed>>
flow == <<slot, claims>>
moves == <<route, gaveUp, disasters, back, trusted>>

Range(log) == {log[n] : n \in DOMAIN log}
Least(set) == CHOOSE n \in set : \A other \in set : n <= other
Lesser(a, b) == IF a <= b THEN a ELSE b

Rest == [at |-> "rest", epoch |-> 0, left |-> {}, heard |-> FALSE]
NoOne == [at |-> "", choice |-> "", request |-> 0, end |-> 0, epoch |-> 0, start |-> 0, cuts |-> 0,
         routed |-> FALSE]

-----------------------------------------------------------------------------
(* P: producers write, also those that follow no route.  Its log may lose  *)
(* its end (an unclean restart): the offsets get other records.            *)

Produce ==
    /\ written < MaxRecords
    /\ written' = written + 1
    /\ source' = Append(source, [id |-> written', epoch |-> epoch])
    /\ UNCHANGED <<epoch, cuts, logB, state, notes, flow, moves, settler>>

LosesItsEnd ==
    /\ cuts < MaxCuts /\ source # <<>>
    /\ \E end \in 0..(Len(source) - 1) : source' = SubSeq(source, 1, end)
    /\ cuts' = cuts + 1 /\ epoch' = epoch + 1
    /\ UNCHANGED <<written, logB, state, notes, flow, moves, settler>>

(* Up to where P's log holds what a decision left there: EpochEnd of Kafka *)
HeldTo(note) ==
    LET with == {n \in DOMAIN source : source[n].epoch = note.epoch}
    IN  IF ~On("epoch") THEN note.end
        ELSE IF with = {} THEN 0
        ELSE Lesser(note.end, CHOOSE n \in with : \A other \in with : n >= other)

(* Offsets that a slot leaves out, by the decisions as they count now.     *)
LeftOut == UNION {{n \in DOMAIN source : note.start < n /\ n <= HeldTo(note)} : note \in notes}

-----------------------------------------------------------------------------
(* SLOTS.  A slot reads its assignment to the end, claims, reads it once   *)
(* more under the claim, walks both logs, and copies.  The broker refuses  *)
(* whoever is not the last to have claimed.                                *)

Assigned(s) == state.turn = s
SlotGoes(s, next) == slot' = [slot EXCEPT ![s] = next]

Assign(s) ==
    /\ state.pause = 0 /\ state.turn # s
    /\ state' = [state EXCEPT !.turn = s]
    /\ UNCHANGED <<logP, logB, notes, flow, moves, settler>>

(* Without the guard a slot that hears nothing takes that for no news.     *)
Hears(s) == Assigned(s) \/ (~On("hears") /\ slot[s].heard)

Reads(s) ==
    /\ slot[s].at = "rest" /\ Hears(s)
    /\ SlotGoes(s, [Rest EXCEPT !.at = "may claim", !.heard = TRUE])
    /\ UNCHANGED <<logP, logB, state, notes, claims, moves, settler>>

Claims(s) ==
    /\ slot[s].at = "may claim" /\ claims < MaxClaims
    /\ owner' = s /\ claims' = claims + 1
    /\ SlotGoes(s, [slot[s] EXCEPT !.at = "claimed"])
    /\ UNCHANGED <<logP, copy, sealed, state, notes, moves, settler>>

Walks(s) ==
    /\ slot[s].at = "claimed"
    /\ SlotGoes(s, IF Hears(s) \/ ~On("read under the claim")
                   THEN [slot[s] EXCEPT !.at = "copying", !.epoch = epoch, !.left = LeftOut]
                   ELSE Rest)
    /\ UNCHANGED <<logP, logB, state, notes, claims, moves, settler>>

ToCopy(s) == {n \in DOMAIN source : source[n].id \notin Range(copy) /\ n \notin slot[s].left}

Copies(s) ==
    /\ slot[s].at = "copying" /\ owner = s
    /\ slot[s].epoch = epoch  \* else it finds that P is another now, and claims again
    /\ ToCopy(s) # {}
    /\ copy' = Append(copy, source[Least(ToCopy(s))].id)
    /\ UNCHANGED <<logP, owner, sealed, state, notes, flow, moves, settler>>

(* Fenced, released, or in front of another log: it starts over.           *)
Stops(s) ==
    /\ \/ slot[s].at # "rest" /\ ~Assigned(s)
       \/ slot[s].at = "copying" /\ (owner # s \/ slot[s].epoch # epoch)
    /\ SlotGoes(s, [Rest EXCEPT !.heard = slot[s].heard])
    /\ UNCHANGED <<logP, logB, state, notes, claims, moves, settler>>

-----------------------------------------------------------------------------
(* THE DISASTER: an unplanned move pauses the flow, which takes all from   *)
(* the slots in the same transaction, seals the copy, and decides on B if  *)
(* the pause still stands.  It may be released before that.  Several moves *)
(* share one pause, which gets a new request with each.                    *)

Pauses ==
    /\ "paused" \notin gaveUp /\ route # "B" /\ disasters < MaxDisasters
    /\ gaveUp = IF On("pause first") THEN {} ELSE {"sealed"}
    /\ disasters' = disasters + 1
    /\ state' = [turn |-> "nobody", pause |-> disasters', moves |-> state.moves \cup {disasters'}]
    /\ gaveUp' = gaveUp \cup {"paused"}
    /\ UNCHANGED <<logP, logB, notes, flow, route, back, settler, trusted>>

Seals ==
    /\ "sealed" \notin gaveUp /\ route # "B"
    /\ IF On("pause first") THEN "paused" \in gaveUp ELSE disasters < MaxDisasters
    /\ gaveUp' = gaveUp \cup {"sealed"}
    /\ owner' = IF On("seal") THEN "seal" ELSE owner
    /\ sealed' = IF "paused" \in gaveUp /\ disasters \notin state.moves
                 THEN sealed ELSE Len(copy)  \* it was settled before: Decides is refused
    /\ UNCHANGED <<logP, copy, state, notes, flow, route, disasters, back, settler, trusted>>

Decides ==
    /\ gaveUp = {"paused", "sealed"}
    /\ On("pause in force") => disasters \in state.moves
    /\ route' = "B" /\ gaveUp' = {}
    /\ trusted' = (trusted /\ state.pause # 0)
    /\ UNCHANGED <<logP, logB, state, notes, flow, disasters, back, settler>>

IsReleased ==
    /\ gaveUp = {"paused", "sealed"}
    /\ gaveUp' = {}
    /\ LET others == state.moves \ {disasters}
       IN  /\ state' = [state EXCEPT !.moves = others,
                          !.pause = IF others # {} /\ On("shared pause") THEN @ ELSE 0]
           /\ sealed' = IF others = {} THEN 0 - 1 ELSE sealed
    /\ UNCHANGED <<logP, copy, owner, notes, flow, route, disasters, back, settler, trusted>>

-----------------------------------------------------------------------------
(* THE WAY BACK.  A planned move asks at its gate whether the flow is      *)
(* paused.  An unplanned one, from B to P, cannot: it never reads B.       *)

OpensTheGate ==
    /\ route = "B" /\ ~back
    /\ On("settled first") => state.pause = 0
    /\ back' = TRUE
    /\ UNCHANGED <<logP, logB, state, notes, flow, route, gaveUp, disasters, settler, trusted>>

Returns(to) ==
    /\ route = "B" /\ route' = to /\ back' = FALSE
    /\ UNCHANGED <<logP, logB, state, notes, flow, gaveUp, disasters, settler, trusted>>
FailsBack == back /\ Returns("P")
IsForcedBack == Returns("P by force")

-----------------------------------------------------------------------------
(* SETTLING: looks where P's log ends, then at the routes; seals the copy  *)
(* and looks again; people approve; notes and the end of the pause are one *)
(* transaction, for the pause that was there at first.                     *)

SettlerIdle == UNCHANGED <<logP, logB, state, notes, flow, moves>>

Looks(choice) ==
    /\ settler.at = "" /\ state.pause # 0
    /\ settler' = [NoOne EXCEPT !.at = IF choice = "merge" THEN "approved" ELSE "seal",
                                !.choice = choice, !.request = state.pause]
    /\ SettlerIdle

SettlerSeals ==
    /\ settler.at = "seal"
    /\ owner' = IF On("seal") THEN "seal" ELSE owner
    /\ settler' = [settler EXCEPT !.at = "ends"]
    /\ UNCHANGED <<logP, copy, sealed, state, notes, flow, moves>>

(* The residue: behind the last record that was copied, or left, before.   *)
Copied == {n \in DOMAIN source : source[n].id \in Range(copy)} \cup LeftOut
IsRouted == route # "B" /\ gaveUp = {}  \* the hold of an unplanned move leads nobody to P
ReadsEnds ==
    /\ settler.at = "ends"
    /\ settler' = [settler EXCEPT !.at = IF On("routes") THEN "routes" ELSE "approved",
         !.start = IF Copied = {} THEN 0 ELSE CHOOSE n \in Copied : \A other \in Copied : n >= other,
         !.end = Len(source),
         !.epoch = IF source = <<>> THEN 0 ELSE source[Len(source)].epoch,
         !.cuts = cuts, !.routed = IsRouted]
    /\ SettlerIdle

ReadsRoutes ==
    /\ settler.at = "routes"
    /\ settler' = IF IsRouted THEN NoOne ELSE [settler EXCEPT !.at = "approved"]
    /\ SettlerIdle

(* Without the guard the range ends where the log ends when it is written. *)
Settles ==
    /\ settler.at = "approved"
    /\ settler' = NoOne
    /\ IF state.pause # 0 /\ (On("same pause") => state.pause = settler.request)
       THEN LET end == IF On("range") THEN settler.end ELSE Len(source)
                about == {source[n].id : n \in {m \in DOMAIN source : settler.start < m /\ m <= settler.end}}
            IN  /\ state' = [state EXCEPT !.pause = 0, !.moves = {}]
                /\ sealed' = 0 - 1
                /\ trusted' = (trusted /\ state.pause = settler.request)
                /\ notes' = IF settler.choice = "merge" \/ settler.start >= end THEN notes
                            ELSE notes \cup {[start |-> settler.start, end |-> end, epoch |-> settler.epoch,
                                              about |-> about, routed |-> settler.routed, cuts |-> settler.cuts]}
       ELSE UNCHANGED <<state, notes, sealed, trusted>>
    /\ UNCHANGED <<logP, copy, owner, flow, route, gaveUp, disasters, back>>

-----------------------------------------------------------------------------
Init ==
    /\ source = <<>> /\ epoch = 1 /\ written = 0 /\ cuts = 0
    /\ copy = <<>> /\ owner = "nobody" /\ sealed = 0 - 1
    /\ state = [pause |-> 0, moves |-> {}, turn |-> "nobody"]
    /\ notes = {}
    /\ slot = [s \in Slots |-> Rest] /\ claims = 0
    /\ route = "P" /\ gaveUp = {} /\ disasters = 0 /\ back = FALSE
    /\ settler = NoOne /\ trusted = TRUE

Next ==
    \/ Produce \/ LosesItsEnd
    \/ \E s \in Slots : Assign(s) \/ Reads(s) \/ Claims(s) \/ Walks(s) \/ Copies(s) \/ Stops(s)
    \/ Pauses \/ Seals \/ Decides \/ IsReleased
    \/ OpensTheGate \/ FailsBack \/ IsForcedBack
    \/ \E choice \in Choices : Looks(choice)
    \/ SettlerSeals \/ ReadsEnds \/ ReadsRoutes \/ Settles

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* WHAT MUST HOLD, in every state that can be reached.                     *)

(* Nothing that was sealed grows before its return is settled.             *)
NothingSealedGrows == sealed >= 0 => Len(copy) = sealed

(* What was left by decision is not copied, unless P's log has lost it.    *)
NothingIsCopiedUnasked ==
    \A note \in notes : note.cuts = cuts => note.about \cap Range(copy) = {}

(* Nobody is sent to B by a move whose pause has ended, and who settles    *)
(* ends the pause that was looked at.                                      *)
PausesAreAsSeen == trusted

(* A decision covers what was there when it was taken, and nothing that    *)
(* clients wrote whom a route had sent there.                              *)
DecisionsCoverWhatTheySaw ==
    \A s \in Slots : slot[s].at = "copying" /\ slot[s].epoch = epoch =>
        \A n \in slot[s].left \cap DOMAIN source :
            \E note \in notes : source[n].id \in note.about
NothingRoutedIsLeft == \A note \in notes : ~note.routed

(* A planned move leads nobody to a source that is not copied.             *)
ActiveIsCopied == route = "P" /\ gaveUp = {} => state.pause = 0

(* When a slot has nothing more to copy, all that P holds is on B, or was  *)
(* decided about.                                                          *)
NothingIsLostUnsaid ==
    \A s \in Slots : slot[s].at = "copying" /\ owner = s /\ slot[s].epoch = epoch /\ ToCopy(s) = {} =>
        \A n \in DOMAIN source :
            source[n].id \in Range(copy) \/ \E note \in notes : source[n].id \in note.about
=============================================================================
